"""File formats: text, jsonl, csv, parquet, npy and fixed, read by splits and written as parts.

`plan_splits` and `read_split` are the way in, `encode_part` and `write_part` the way out, `claim_output` and
`write_manifest` what happens before the first and after the last part. NumPy and pyarrow are imported only for the
formats that need them.
"""

from .encode import encode_part as encode_part
from .encode import suffix as suffix
from .options import FileSplit as FileSplit
from .options import Format as Format
from .options import ReadOptions as ReadOptions
from .options import WriteOptions as WriteOptions
from .output import PartInfo as PartInfo
from .output import claim_output as claim_output
from .output import write_manifest as write_manifest
from .output import write_part as write_part
from .read import read_split as read_split
from .read import read_text as read_text
from .splits import plan_splits as plan_splits
