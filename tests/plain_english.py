"""Count words that hide the subject of a sentence: `python tests/plain_english.py`, a part of `make check`.

A sentence names the thing: the member, the driver, the record. Each area has a ceiling of matches per 10,000 words.
Above it the check fails and prints the worst lines.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
CEILINGS = {
    "docs": 7,
    "docstrings": 1,
    "comments": 5,
    "docstrings of tests": 1,
    "comments of tests": 5,
    "test names": 1,
}
"""Matches per 10,000 words, at most; in the small areas a single match is 2 to 4."""
_VERBS = "is|was|has|are|were|it|they|comes|follows|does|did|cannot|can|ran|runs|no|others?|only|another|a|the|one"
PATTERNS = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\b(who|whoever|whom)\b",
        rf"\bwhat ({_VERBS})\b",
        r"\b(whatever|whichever)\b",
        r"\b(is|are|was|were|be|been|being) (told|said)\b|\btells? of\b",
        r"\b(somebody|nobody|everybody|anybody)\b",
        r"\b(the one|those|that one) (that|which|who|of)\b",
        r"\b(begins?|began|begun|made|told|counted|asked) (anew|again)\b|\bstands? in\b|\blies? beside\b",
        r"\b(is|are) no [a-z]+\b",
    )
]
_WORD = re.compile(r"[A-Za-z']+")


class Line(NamedTuple):
    place: str
    text: str

    @property
    def matches(self) -> int:
        return sum(len(pattern.findall(self.text)) for pattern in PATTERNS)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--worst", type=int, default=10, metavar="N", help="Lines to print of an area that fails.")
    worst = options.parse_args().worst
    areas = collect()
    return max([check(area, lines, worst) for area, lines in areas.items()])


def check(area: str, lines: list[Line], worst: int) -> int:
    """1 if the area is above its ceiling, otherwise 0."""
    words = sum(len(_WORD.findall(line.text)) for line in lines)
    rate = 1e4 * sum(line.matches for line in lines) / max(words, 1)
    failed = rate > CEILINGS[area]
    report = [f"{area}: {words:,} words, {rate:.1f} per 10,000, at most {CEILINGS[area]}{failed * ' FAILED'}"]
    if failed:
        found = sorted((line for line in lines if line.matches), key=lambda line: -line.matches)
        report += [f"  {line.place}: {line.text.strip()}" for line in found[:worst]]
    sys.stdout.write("\n".join(report) + "\n")
    return int(failed)


def collect() -> dict[str, list[Line]]:
    areas: dict[str, list[Line]] = {area: [] for area in CEILINGS}
    for name in tracked():
        text = (ROOT / name).read_text()
        if name.endswith(".md"):
            areas["docs"] += prose(name, re.sub(r"```.*?```", _blank, text, flags=re.DOTALL))
            continue
        kind = " of tests" if name.startswith("tests/") else ""
        areas[f"docstrings{kind}"] += docstrings(name, text)
        areas[f"comments{kind}"] += comments(name, text)
        if kind:
            areas["test names"] += test_names(name, text)
    return areas


def tracked() -> list[str]:
    """Markdown and Python files under version control, this one left out."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md", "*.py"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    own = str(Path(__file__).relative_to(ROOT))
    return sorted(name for name in found if name not in ("", own) and (ROOT / name).is_file())


def prose(name: str, text: str, first: int = 1) -> Iterator[Line]:
    for number, line in enumerate(text.splitlines(), first):
        if line.strip():
            yield Line(f"{name}:{number}", line)


def docstrings(name: str, text: str) -> Iterator[Line]:
    """Docstrings, also those of attributes."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from prose(name, node.value.value, node.lineno)


def comments(name: str, text: str) -> Iterator[Line]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield Line(f"{name}:{token.start[0]}", token.string.lstrip("# "))


def test_names(name: str, text: str) -> Iterator[Line]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield Line(f"{name}:{node.lineno}", node.name.replace("_", " "))


def _blank(block: re.Match[str]) -> str:
    """As many empty lines, so that line numbers stay right."""
    return "\n" * block[0].count("\n")


if __name__ == "__main__":
    sys.exit(main())
