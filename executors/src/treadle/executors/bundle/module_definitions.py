"""Splits a module into statements, the names they bind and its imports. Sources are read, never run."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from .import_graph import ENGINE
from .name_reads import bound, defaults

_DOCUMENTED = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
Place = tuple[int, int]
"""Line and column."""
_GUARD = "__name__ == '__main__'"


class Imported(NamedTuple):
    """The source of an imported name. `import a.b` binds `a` to the module `a`, and also runs `a.b`."""

    module: str
    name: str = ""
    """The name imported from the module; empty: the module itself."""
    runs: str = ""
    """The module that the statement imports."""


@dataclass
class Module:
    """A module of the project. Bindings are top-level names; imports are those anywhere in the module."""

    name: str
    path: str
    """Relative to the import folder: `pkg/helpers.py`."""
    bindings: dict[str, list[ast.stmt]] = field(default_factory=dict)
    imports: dict[str, list[Imported]] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    """Modules imported with `*`."""
    statements: list[ast.stmt] = field(default_factory=list)
    """The statements that importing runs: all except the script's main block."""

    @property
    def runs(self) -> Iterator[str]:
        """Modules that it imports or may import: a name imported from a package can be a submodule."""
        yield from self.stars
        for one in (one for found in self.imports.values() for one in found):
            yield one.runs or one.module
            if one.name:
                yield f"{one.module}.{one.name}"

    def is_foreign(self, node: ast.expr, owns: Callable[[str], bool]) -> bool:
        """Whether the expression comes from a third-party distribution."""
        tops = {one.module.partition(".")[0] for one in self.imports.get(root_of(node), ())}
        return any(not owns(top) for top in tops - sys.stdlib_module_names - {ENGINE})


def parse_module(name: str, path: str, source: bytes, owns: Callable[[str], bool], *, docstrings: bool) -> Module:
    """Parse a module; `owns` tests whether a module is part of the project.

    Docstrings count if `docstrings` is set. They also count if a decorator or base class of a third-party distribution
    may use them (as a prompt or a description). Raises SyntaxError, ValueError.
    """
    tree = ast.parse(source, path)
    module = Module(name, path)
    package = name if path.endswith("__init__.py") else name.rpartition(".")[0]
    for node in ast.walk(tree):
        _note_import(module, package, node)
    if not docstrings:
        _drop_docstrings(module, tree, owns)
    module.statements = [one for one in tree.body if not _is_script(one)]
    for statement in module.statements:
        for name_of_it in set(bound(statement)):
            module.bindings.setdefault(name_of_it, []).append(statement)
    return module


def _drop_docstrings(module: Module, tree: ast.Module, owns: Callable[[str], bool]) -> None:
    for node in ast.walk(tree):
        if not isinstance(node, _DOCUMENTED) or not node.body or not is_text(node.body[0]):
            continue
        if not any(module.is_foreign(maker, owns) for maker in _made_by(node)):
            del node.body[0]


def is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def place_of(statement: ast.stmt) -> Place:
    return statement.lineno, statement.col_offset


def is_plain(statement: ast.stmt) -> bool:
    """Whether it is a function definition that reads no names before it is called, so that its position does not
    matter."""
    if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    return not statement.decorator_list and not defaults(statement.args)


def _is_script(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and not statement.orelse and ast.unparse(statement.test) == _GUARD


def _made_by(node: ast.AST) -> list[ast.expr]:
    """The expressions that are called when a definition is executed."""
    match node:
        case ast.ClassDef():
            return [*node.decorator_list, *node.bases, *(one.value for one in node.keywords)]
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return node.decorator_list
    return []


def root_of(node: ast.AST) -> str:
    """`a` of `a.b(c)[d].e`; empty if the expression does not start with a name."""
    while True:
        match node:
            case ast.Attribute(value=inner) | ast.Subscript(value=inner) | ast.Call(func=inner):
                node = inner
            case ast.Name(id=name):
                return name
            case _:
                return ""


# -- imports ----------


def _note_import(module: Module, package: str, node: ast.AST) -> None:
    if isinstance(node, ast.Import):
        for alias in node.names:
            top = alias.name.partition(".")[0]
            found = Imported(alias.name) if alias.asname else Imported(top, runs=alias.name)
            module.imports.setdefault(alias.asname or top, []).append(found)
    elif isinstance(node, ast.ImportFrom):
        source = _absolute(package, node)
        for alias in node.names:
            if alias.name == "*":
                module.stars.append(source)
            else:
                module.imports.setdefault(alias.asname or alias.name, []).append(Imported(source, alias.name))


def _absolute(package: str, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    kept = parts[: len(parts) - node.level + 1]
    return ".".join([*kept, *([node.module] if node.module else [])])
