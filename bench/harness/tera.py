"""Records for terasort, and the numpy functions of every sorter except treadle: sample, partition, merge.

Records are 100 printable bytes; the first ten are the key. A file of them is an array of shape (n, 100).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from harness.work import Array

RECORD, KEY, FILES = 100, 10, 8
SAMPLE = 2000
"""Keys taken from each file."""


def make(folder: Path, size: int) -> Path:
    """Make `size` bytes in `FILES` files of `folder`, once."""
    data = folder / f"records-{size}"
    if not (data / "expected.json").exists():
        data.mkdir(parents=True, exist_ok=True)
        count, digest = size // FILES // RECORD, 0
        for index in range(FILES):
            records = np.random.default_rng([size, index]).integers(33, 127, (count, RECORD), dtype=np.uint8)
            records[:, -1] = ord("\n")
            records.tofile(data / f"rec-{index}")
            digest = (digest + fingerprint(records)) % 2**64
        (data / "expected.json").write_text(json.dumps({"records": count * FILES, "fingerprint": digest}))
    return data


def files(data: Path) -> list[str]:
    return sorted(map(str, data.glob("rec-*")))


def expected(data: Path) -> dict[str, int]:
    found: dict[str, int] = json.loads((data / "expected.json").read_text())
    return found


def fingerprint(records: Array) -> int:
    """The same for the same records in any order. Whole records are mixed, so that swapped pieces change it."""
    words = np.ascontiguousarray(records).view("<u4").astype(np.uint64)
    factors: Array = np.random.default_rng(7).integers(0, 2**63, int(words.shape[1]), dtype=np.uint64)
    mixed = np.zeros(len(words), dtype=np.uint64)
    for column in range(words.shape[1]):
        mixed = (mixed + words[:, column]) * (factors[column] | np.uint64(1))  # odd, so that no bit is lost
        mixed ^= mixed >> np.uint64(29)
    return int(mixed.sum(dtype=np.uint64))


def check(target: Path, expected: dict[str, int]) -> None:
    """Raises AssertionError unless the files of `target`, in the order of their names, hold the records in the order of
    their keys."""
    count, digest, last = 0, 0, b""
    for path in sorted(path for path in target.rglob("*") if path.is_file() and path.name[0] not in "._"):
        records = read(str(path))
        if len(records) == 0:
            continue
        keys = np.ascontiguousarray(records[:, :KEY]).view(f"S{KEY}")[:, 0]
        assert bool((keys[1:] >= keys[:-1]).all()), f"{path.name} is not in order"
        assert bytes(keys[0]) >= last, f"{path.name} begins before its predecessor ends"
        last = bytes(keys[-1])
        count, digest = count + len(records), (digest + fingerprint(records)) % 2**64
    assert (count, digest) == (expected["records"], expected["fingerprint"]), f"not the same records: {count}"


def read(path: str) -> Array:
    return np.fromfile(path, dtype=np.uint8).reshape(-1, RECORD)


def _words(records: Array) -> Array:
    """The first eight bytes of the keys, as numbers in the same order."""
    return np.ascontiguousarray(records[:, :8]).view(">u8").ravel().astype(np.uint64)


def sample(path: str) -> Array:
    records = np.memmap(path, dtype=np.uint8, mode="r").reshape(-1, RECORD)
    return _words(records[:: max(1, len(records) // SAMPLE)])


def bounds(samples: list[Array], parts: int) -> Array:
    ordered = np.sort(np.concatenate(samples))
    return ordered[[len(ordered) * part // parts for part in range(1, parts)]]


def partition(path: str, bounds: Array) -> list[Array]:
    """The records of each range, unordered."""
    records = read(path)
    targets = np.searchsorted(bounds, _words(records), side="right").astype(np.int8)
    order = np.argsort(targets, kind="stable")
    return np.split(records[order], np.searchsorted(targets[order], np.arange(1, len(bounds) + 1)))


def merge(parts: Any, path: str) -> int:
    records = np.concatenate(parts)
    words = _words(records)
    order = np.argsort(words)
    ordered = words[order]
    if (ordered[1:] == ordered[:-1]).any():  # the last two bytes decide
        order = np.lexsort((np.ascontiguousarray(records[:, 8:KEY]).view(">u2").ravel(), words))
    records[order].tofile(path)
    return len(records)
