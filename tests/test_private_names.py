"""A test that reaches into another module's private names says why."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
PRIVATE = re.compile(r"_(?!_|repr_)")
"""`_repr_html_` and its like are the public names of notebooks."""
PUBLIC = {"_replace", "_exit"}
"""Of named tuples and of `os`; documented in spite of the underscore, as the codes of `KafkaError`."""
REASON = re.compile(r"# private: \w+")
MOST = 80
"""Characters of a test's name."""


def own_names(tree: ast.Module) -> set[str]:
    """Names that the file defines itself, attributes of its classes' instances too."""
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            found.add(node.attr)
    return found


def private_uses(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, name), in the order of the text."""
    own = own_names(tree) | PUBLIC
    for node in sorted(ast.walk(tree), key=lambda node: getattr(node, "lineno", 0)):
        names = list[str]()
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) != "KafkaError":
            names = [node.attr]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("treadle"):
            names = [alias.name for alias in node.names]
        yield from ((getattr(node, "end_lineno", 0), name) for name in names if PRIVATE.match(name) and name not in own)


def unexplained(text: str) -> list[tuple[int, str]]:
    """The first use of each private name without a reason on its line or on the line above."""
    lines = ["", *text.splitlines()]
    first = {name: line for line, name in reversed(list(private_uses(ast.parse(text))))}
    return [(line, name) for name, line in first.items() if not any(map(REASON.search, lines[line - 1 : line + 1]))]


def test_private_names_of_other_modules_are_used_with_a_reason() -> None:
    files = sorted(TESTS.rglob("*.py"))
    found = [
        f"{file.relative_to(TESTS)}:{line}: {name}" for file in files for line, name in unexplained(file.read_text())
    ]
    assert not found, "\n".join(["add `# private: REASON`, or use a public way", *found])


def test_private_use_is_found_unless_a_reason_stands_on_its_line_or_above() -> None:
    assert unexplained("import m\nm._a\nm._a\nx = m.b._c") == [(4, "_c"), (2, "_a")]
    assert unexplained("from treadle.x import _y") == [(1, "_y")]
    assert unexplained("m._a  # private: no public way\nm._a\n# private: the same\nm._b") == []
    assert unexplained("m._a  # private:\n") == [(1, "_a")]
    assert unexplained("class C:\n    def __init__(self):\n        self._a = 1\nC()._a") == []


def test_names_of_tests_are_short() -> None:
    trees = [ast.parse(file.read_text()) for file in sorted(TESTS.rglob("*.py"))]
    names = [
        node.name
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert [name for name in names if name.startswith("test_") and len(name) > MOST] == []
