"""Word count: `python session/words.py '../docs/*.md'` prints the most frequent words of the files."""

import glob
import os
import sys
from collections import Counter
from operator import add
from pathlib import Path

from treadle.client import session


def words(path):
    """The words of a file with their counts."""
    return Counter(Path(path).read_text("utf-8").lower().split())


def main(pattern):
    files = sorted(map(os.path.abspath, glob.glob(pattern)))
    with session("words") as s:
        counts = s.map_reduce(words, files, add, per="key").result()
    for word, count in Counter(counts).most_common(5):
        print(f"{count:6} {word}")


if __name__ == "__main__":
    main(sys.argv[1])
