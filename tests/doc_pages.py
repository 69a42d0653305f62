"""Pages of Markdown for the tests of the docs: blocks of code, commands, headings and links.

A block whose first line is `# NAME.py` or `# NAME.yaml` is a file of the page. The comment `<!-- not run: REASON -->`
before a block of Python means that the block is compiled only.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
_FENCE = re.compile(r"(?:^<!-- not run: (?P<reason>.+) -->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S)
_FILE = re.compile(r"# (?P<name>[\w.-]+\.(?:py|yaml))\n")


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    text: str
    is_run: bool

    @property
    def file(self) -> str | None:
        """The name of the block's file, if it is one."""
        found = _FILE.match(self.text)
        return found["name"] if found else None

    @property
    def code(self) -> str:
        """The text after as many empty lines as precede it on the page, so that errors have the page's line numbers."""
        return "\n" * self.line + self.text


def pages() -> list[Path]:
    """Every page of the site."""
    folders = ("docs", "examples", "bench", "tests")
    return sorted([*ROOT.glob("*.md"), *(page for folder in folders for page in (ROOT / folder).rglob("*.md"))])


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> list[Block]:
    text = page.read_text("utf-8")
    return [
        Block(page, text.count("\n", 0, found.start("text")), found["language"], found["text"], found["reason"] is None)
        for found in _FENCE.finditer(text)
        if found["language"] in languages
    ]


def write_files(page: Path, folder: Path) -> None:
    """Write the files of a page."""
    for block in blocks(page, "python", "yaml"):
        if block.file:
            (folder / block.file).write_text(block.text)


def run_tests(page: Path, folder: Path, *options: str, **variables: str) -> tuple[str, str]:
    """Write the files of a page into the folder, and run the page's command `pytest` there. Returns the number of tests
    that passed, and the number that the page shows."""
    write_files(page, folder)
    [console] = blocks(page, "console")
    [arguments] = re.findall(r"^\$ pytest (.*)$", console.text, re.M)
    program = [
        sys.executable,
        "-m",
        "pytest",
        *arguments.split(),
        "-p",
        "no:cacheprovider",
        f"--basetemp={folder}/made",
    ]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")} | variables
    done = subprocess.run([*program, *options], cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    passed, shown = (re.findall(r"^(\d+) passed", text, re.M) for text in (done.stdout, console.text))
    return passed[0], shown[0]


def prose(page: Path) -> str:
    """The page without its blocks of code."""
    return re.sub(r"^( *)(`{3,}|:{3,}).*?^\1\2$", "", page.read_text("utf-8"), flags=re.M | re.S)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as on GitHub and the site."""
    found: dict[str, int] = {}
    for heading in re.findall(r"^#{1,6} +(.+)$", prose(page), re.M):
        shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", shown.lower()).strip().replace(" ", "-")
        found[slug] = found.get(slug, -1) + 1
    return {f"{slug}-{n}" if n else slug for slug, last in found.items() for n in range(last + 1)}


def links(page: Path) -> Iterator[tuple[str, str]]:
    """(path, anchor) of each link to another page or file of the repository. The path is empty for the page itself."""
    text = re.sub(r"`[^`\n]+`", "", prose(page))
    for target in re.findall(r"\]\(\s*<?([^)\s>]+)", text):
        if not re.match(r"[a-z]+:", target):
            path, _, anchor = target.partition("#")
            yield path, anchor


def commands(page: Path, program: str) -> Iterator[list[str]]:
    """The words after `program` in each command line of a page: after `$ `, or in a code span that begins with it."""
    text = page.read_text("utf-8").replace("\\\n", " ")
    lines = re.findall(r"^ *\$ (.+)$", text, re.M)
    lines += re.findall(rf"`({program} [^`]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S))
    for line in lines:
        words = _words(line.replace("\\|", "/"))
        for index, word in enumerate(words):
            if word == program and (index == 0 or words[index - 1] in _STARTS):
                end = next((n for n in range(index, len(words)) if words[n] in _ENDS), len(words))
                yield words[index + 1 : end]


_STARTS = {"|", ";", "&&", "("}
_ENDS = {"|", ";", "&&", ">", ">>", ")"}


def _words(line: str) -> list[str]:
    try:
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.commenters = "#"
        return list(lexer)
    except ValueError:  # a quote in prose
        return line.split()
