"""File formats: text, jsonl, csv, parquet, npy and fixed, read by splits and written as parts."""

from .options import FileSplit as FileSplit
from .options import Format as Format
from .options import ReadOptions as ReadOptions
from .options import WriteOptions as WriteOptions
