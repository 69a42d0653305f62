"""The inputs, made once in BENCH_DIR together with the right answers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from harness import tera

from workloads.settings import DATA, PROJECT, Sizes

sys.path.insert(0, str(PROJECT))
import jobs as jobs  # found by the line above; others take it from here

EXPECTED = "expected.json"
_LINE = 80
"""Maximum of characters in a line of text."""


def make(sizes: Sizes) -> None:
    """Make all missing inputs. A folder is complete once it has its expected answer."""
    for folder, maker in ((text(sizes), _make_text), (points(sizes), _make_points)):
        if not (folder / EXPECTED).exists():
            folder.mkdir(parents=True, exist_ok=True)
            maker(folder, sizes)
    tera.make(DATA, sizes.sort_bytes)


def expected(folder: Path) -> Any:
    return json.loads((folder / EXPECTED).read_text())


def text(sizes: Sizes) -> Path:
    return DATA / f"text-{sizes.text_bytes}"


def points(sizes: Sizes) -> Path:
    return DATA / f"points-{sizes.points}-{sizes.iterations}"


def records(sizes: Sizes) -> Path:
    return DATA / f"records-{sizes.sort_bytes}"


def array(sizes: Sizes) -> jobs.Floats:
    """The broadcast's array: whole numbers, so that a sum is exact in any order."""
    return np.random.default_rng(44).integers(0, 1000, sizes.array).astype(np.float64)


def vocabulary(count: int) -> list[str]:
    """Different words of two to eleven letters."""
    rng = np.random.default_rng(1841)
    found: dict[str, None] = {}
    while len(found) < count:
        letters = rng.integers(97, 123, rng.integers(2, 12), dtype=np.uint8)
        found[letters.tobytes().decode()] = None
    return list(found)


def _make_text(folder: Path, sizes: Sizes) -> None:
    """Words in lines, with a frequency inverse to their rank (Zipf 1935)."""
    words = np.array(vocabulary(sizes.vocabulary))
    shares = 1 / np.arange(1, len(words) + 1)
    cumulative = np.cumsum(shares / shares.sum())
    counts = np.zeros(len(words), np.int64)
    for index in range(sizes.text_files):
        rng = np.random.default_rng([1841, index])
        with (folder / f"text-{index:02d}.txt").open("w") as file:
            while file.tell() < sizes.text_bytes // sizes.text_files:
                drawn = np.minimum(np.searchsorted(cumulative, rng.random(100_000)), len(words) - 1)
                counts += np.bincount(drawn, minlength=len(words))
                file.write(_lines(words[drawn].tolist()))
    known = {str(word): int(count) for word, count in zip(words, counts, strict=True) if count}
    (folder / EXPECTED).write_text(json.dumps(known))


def _lines(words: list[str]) -> str:
    """A newline replaces the space after each word that reaches the next multiple of `_LINE`."""
    ends = np.cumsum([len(word) + 1 for word in words]) // _LINE
    breaks = np.append(np.diff(ends) > 0, True).tolist()
    return "".join(word + ("\n" if last else " ") for word, last in zip(words, breaks, strict=True))


def _make_points(folder: Path, sizes: Sizes) -> None:
    """Points around centres, with the first centroids and the final ones."""
    rng = np.random.default_rng(1982)
    centres = rng.normal(0, 3, (sizes.centroids, sizes.dimensions))
    around = centres[rng.integers(0, sizes.centroids, sizes.points)]
    drawn = around + rng.normal(0, 2, around.shape)
    parts = np.array_split(drawn, sizes.tasks)
    for index, part in enumerate(parts):
        np.save(folder / f"points-{index}.npy", part)
    centroids = drawn[rng.choice(sizes.points, sizes.centroids, replace=False)]
    np.save(folder / "start.npy", centroids)
    for _ in range(sizes.iterations):
        centroids = jobs.moved(jobs.fold(jobs.nearest(part, centroids) for part in parts), centroids)
    np.save(folder / "end.npy", centroids)
    (folder / EXPECTED).write_text(json.dumps({"iterations": sizes.iterations}))
