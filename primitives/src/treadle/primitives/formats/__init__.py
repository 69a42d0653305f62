"""File formats: text, jsonl, csv, parquet, npy and fixed, read by splits and written as parts.

`plan_splits` and `read_pieces` are the way in (`read_split`: all of it at once), `encode_part` and `write_part` the way
out, `claim_output` and `write_manifest` what happens before the first and after the last part. NumPy and pyarrow are
imported only for the formats that need them.
"""

from typing import TYPE_CHECKING

from ..late import late
from .options import FileSplit, Format, ReadOptions, WriteOptions

if TYPE_CHECKING:
    from .encode import encode_part, suffix
    from .output import PartInfo, check_output, claim_output, release_output, write_manifest, write_part
    from .pieces import encode_pieces
    from .read import read_pieces, read_split, read_text
    from .splits import plan_splits

_HOMES = {
    "encode_part": ".encode",
    "encode_pieces": ".pieces",
    "suffix": ".encode",
    "PartInfo": ".output",
    "check_output": ".output",
    "claim_output": ".output",
    "release_output": ".output",
    "write_manifest": ".output",
    "write_part": ".output",
    "read_pieces": ".read",
    "read_split": ".read",
    "read_text": ".read",
    "plan_splits": ".splits",
}

__all__ = [
    "FileSplit",
    "Format",
    "PartInfo",
    "ReadOptions",
    "WriteOptions",
    "check_output",
    "claim_output",
    "encode_part",
    "encode_pieces",
    "plan_splits",
    "read_pieces",
    "read_split",
    "read_text",
    "release_output",
    "suffix",
    "write_manifest",
    "write_part",
]

# A worker whose tasks touch no file is ready without any of it.
__getattr__ = late(__name__, _HOMES)
