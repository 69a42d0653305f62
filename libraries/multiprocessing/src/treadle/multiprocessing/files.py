"""`open` and `os` for programs whose files are objects of a store.

    from treadle.multiprocessing.files import open, os

    with open("s3://bucket/words/a.txt") as file:
        print(sum(map(len, file)), os.listdir("s3://bucket/words"))

`treadle.primitives.stores.object_files` has them.
"""

from treadle.primitives.stores.object_files import open as open
from treadle.primitives.stores.object_files import os as os

__all__ = ["open", "os"]
