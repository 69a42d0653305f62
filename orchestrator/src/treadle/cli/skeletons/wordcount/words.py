"""Functions of wordcount.yaml: plain Python, called by the stages that name them."""

from __future__ import annotations

import re
from collections.abc import Iterator


def tokenize(line: str) -> Iterator[tuple[str, int]]:
    """Yield (word, 1) for each word of a line."""
    for word in re.findall(r"\w+", line.lower()):
        yield word, 1


def add(a: int, b: int) -> int:
    return a + b
