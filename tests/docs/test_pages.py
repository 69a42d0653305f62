"""Every page of the docs: its code runs, its commands exist, its links are valid."""

from __future__ import annotations

import doctest
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main
from doc_pages import ROOT, Block, anchors, blocks, commands, links, name, pages, write_files
from pydantic import TypeAdapter

from treadle.cli.commands import app
from treadle.dsl import Workflow
from treadle.dsl.document.document import Document
from treadle.dsl.document.workflow_files import load
from treadle.dsl.model import Settings, Stage
from treadle.dsl.normalise import normalise
from treadle.dsl.triggers import Trigger
from treadle.dsl.validation.functions import check_functions
from treadle.dsl.validation.validate import validate

MODULES = {"README.md": "examples/wordcount"}
"""The folder of the modules that a page imports and does not show."""


def having(*languages: str) -> list[Any]:
    return [pytest.param(page, id=name(page)) for page in pages() if blocks(page, *languages)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, first on the path. Modules imported from it are removed afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for module in set(sys.modules) - before:
        if not module.startswith(("treadle.", "numpy", "pyarrow")):
            del sys.modules[module]


def places(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders with the modules of a page."""
    write_files(page, folder)
    found = [folder, *(ROOT / place for place in [MODULES.get(name(page))] if place)]
    for place in found:
        monkeypatch.syspath_prepend(str(place))
    return found


def is_workflow(block: Block) -> bool:
    return block.language == "yaml" and re.search(r"^apiVersion:", block.text, re.M) is not None


def read(block: Block, folder: Path) -> Document:
    return load(folder / block.file) if block.file else load(block.text)


@pytest.mark.parametrize("page", having("yaml"))
def test_workflow_of_a_page_is_valid(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = places(page, folder, monkeypatch)
    for block in filter(is_workflow, blocks(page, "yaml")):
        document = read(block, folder)
        assert validate(document) == [], f"line {block.line}"
        used = {module for module in re.findall(r"\b(\w+):\w+", block.text) if (modules[-1] / f"{module}.py").exists()}
        if used:
            assert check_functions(document, modules) == [], f"line {block.line}"


@pytest.mark.parametrize("page", having("yaml"))
def test_part_of_a_workflow_on_a_page_fits_the_model(page: Path) -> None:
    stage, trigger = TypeAdapter[Any](Stage), TypeAdapter[Any](Trigger)
    for block in blocks(page, "yaml"):
        if is_workflow(block):
            continue
        data = load(block.text).data
        assert isinstance(data, dict), f"line {block.line}: no keys"
        for key, value in data.items():
            if key in ("triggers", "stages"):
                for part in value.values():
                    (trigger if key == "triggers" else stage).validate_python(part)
            elif key == "defaults":
                Settings.model_validate(value)
            elif isinstance(value, dict) and "type" in value:
                stage.validate_python(value)


def run_script(page: Path) -> list[Workflow]:
    """Run the Python blocks of a page in order, as one script. Returns the workflows that it makes.

    Parts of a workflow add to an empty one, `wf`.
    """
    empty = Workflow("page")
    names: dict[str, Any] = {"__name__": "__main__", "wf": empty}
    made: list[Workflow] = []
    for block in blocks(page, "python", "pycon"):
        if block.language == "pycon":
            run_session(block, names)
            continue
        compiled = compile(block.code, str(page), "exec", dont_inherit=True)
        if block.is_run and not block.file:
            exec(compiled, names)
            made += [value for value in names.values() if isinstance(value, Workflow) and value is not empty]
    return made


def run_session(block: Block, names: dict[str, Any]) -> None:
    """Run a block of `>>>` lines, and compare its output with the page."""
    test = doctest.DocTestParser().get_doctest(block.text, names, name(block.page), None, block.line)
    said: list[str] = []
    results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append, clear_globs=False)
    names.update(test.globs)
    assert results.failed == 0, "".join(said)


@pytest.mark.parametrize("page", having("python", "pycon"))
def test_python_of_a_page_runs_and_is_its_yaml(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places(page, folder, monkeypatch)
    documents = [read(block, folder).require() for block in blocks(page, "yaml") if is_workflow(block)]
    in_yaml = {document.name: normalise(document) for document in documents}
    for spec in [workflow.spec() for workflow in run_script(page)]:
        if spec.name in in_yaml:
            assert normalise(spec) == in_yaml[spec.name]


@pytest.mark.parametrize("page", having("toml", "json"))
def test_data_of_a_page_can_be_read(page: Path) -> None:
    for block in blocks(page, "toml", "json"):
        assert (tomllib.loads if block.language == "toml" else json.loads)(block.text)


@cache
def command_line() -> Any:
    return typer.main.get_command(app)


def unknown(words: list[str]) -> list[str]:
    """Commands and options among the words after `treadle` that do not exist."""
    command = command_line()
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        two = "-".join(words[:2])
        taken, key = (2, two) if two in command.commands else (1, words[0])
        if key not in command.commands:
            return [] if words[0].isupper() else [words[0]]
        command, words = command.commands[key], words[taken:]
    options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    given = [word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)]
    return [option for option in given if option not in {*options, "--help"}]


@pytest.mark.parametrize("page", [pytest.param(page, id=name(page)) for page in pages()])
def test_commands_on_a_page_exist(page: Path) -> None:
    assert [(words, wrong) for words in commands(page, "treadle") if (wrong := unknown(words))] == []
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text("utf-8"), re.M)
    made = [word for words in commands(page, "make") for word in words if re.fullmatch(r"[a-z-]+", word)]
    assert [word for word in made if word not in {*targets, "system-packages"}] == []


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("runn FILE", ["runn"]),
        ("run FILE --idd x", ["--idd"]),
        ("dev upp", ["upp"]),
        ("deploy lambda --adoptt", ["--adoptt"]),
        ("deploy lambda --policy driver", []),
        ("run FILE -i corpus=x --id=y", []),
    ],
)
def test_unknown_command_or_option_is_found(line: str, wrong: list[str]) -> None:
    assert unknown(line.split()) == wrong


@pytest.mark.parametrize("page", [pytest.param(page, id=name(page)) for page in pages()])
def test_links_of_a_page_lead_to_a_file_and_a_heading(page: Path) -> None:
    lost = []
    for path, anchor in links(page):
        target = (page.parent / path).resolve() if path else page
        if not target.is_file() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            lost.append(f"{path}#{anchor}")
    assert lost == []


def test_broken_link_and_failing_code_are_found(tmp_path: Path) -> None:
    """Checks the check: one that reads nothing would pass."""
    page = tmp_path / "page.md"
    page.write_text("# Two `words`\n[a](#two-words) [b](other.md#x) `[c](d)`\n```pycon\n>>> 1 + 1\n3\n```\n")
    assert list(links(page)) == [("", "two-words"), ("other.md", "x")]
    assert anchors(page) == {"two-words"}
    (block,) = blocks(page, "pycon")
    with pytest.raises(AssertionError, match=r"Got:\n\s+2\n"):
        run_session(Block(ROOT, block.line, block.language, block.text, True), {})
