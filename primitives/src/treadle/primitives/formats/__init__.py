"""File formats: text, jsonl, csv, parquet, npy and fixed, read by splits and written as parts.

`plan_splits` and `read_pieces` read (`read_split`: all at once). `encode_part` and `write_part` write; `claim_output`
precedes the first part and `write_manifest` follows the last. NumPy and pyarrow are imported only for the formats that
need them.
"""

from typing import TYPE_CHECKING

from ..lazy_import import late
from .options import FileSplit as FileSplit
from .options import Format as Format
from .options import ReadOptions as ReadOptions
from .options import WriteOptions as WriteOptions

if TYPE_CHECKING:
    from .encode import encode_part as encode_part
    from .encode import suffix as suffix
    from .encode_stream import encode_pieces as encode_pieces
    from .output_folder import check_output as check_output
    from .output_folder import claim_output as claim_output
    from .output_folder import release_output as release_output
    from .output_folder import write_manifest as write_manifest
    from .output_folder import write_part as write_part
    from .read import read_pieces as read_pieces
    from .read import read_split as read_split
    from .read import read_text as read_text
    from .splits import plan_splits as plan_splits

_OUTPUT = ("check_output", "claim_output", "release_output", "write_manifest", "write_part")
_HOMES = {
    **dict.fromkeys(("encode_part", "suffix"), ".encode"),
    **dict.fromkeys(_OUTPUT, ".output_folder"),
    "encode_pieces": ".encode_stream",
    **dict.fromkeys(("read_pieces", "read_split", "read_text"), ".read"),
    "plan_splits": ".splits",
}

# A worker whose tasks use no file starts without these modules.
__getattr__ = late(__name__, _HOMES)
