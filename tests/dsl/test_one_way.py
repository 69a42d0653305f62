"""Modules of the language import each other in one direction, also inside functions. Type imports are exempt."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from treadle.dsl import model

FOLDER = Path(str(model.__file__)).parent


def imported(file: Path) -> Iterator[Path]:
    """Files of the same folder that a module imports when it runs."""
    todo: list[ast.AST] = [ast.parse(file.read_text("utf-8"))]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom) and node.level:
            base = file.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            for place in (base, *(base / alias.name for alias in node.names)):
                yield from (known for known in (place.with_suffix(".py"), place / "__init__.py") if known.exists())
        todo += ast.iter_child_nodes(node)


def order(folder: Path) -> list[Path]:
    graph = {file: set(imported(file)) - {file} for file in folder.rglob("*.py")}
    return list(TopologicalSorter(graph).static_order())


def test_modules_of_the_language_import_in_one_direction() -> None:
    found = order(FOLDER)
    assert found.index(FOLDER / "model.py") < found.index(FOLDER / "document" / "document.py")
    assert found.index(FOLDER / "document" / "document.py") < found.index(FOLDER / "document" / "workflow_files.py")


def test_two_modules_that_import_each_other_are_found(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("from .two import a\n")
    (tmp_path / "two.py").write_text("def f():\n    from .one import b\n")
    with pytest.raises(CycleError):
        order(tmp_path)
    (tmp_path / "two.py").write_text("if TYPE_CHECKING:\n    from .one import b\n")
    assert order(tmp_path) == [tmp_path / "two.py", tmp_path / "one.py"]
