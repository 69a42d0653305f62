"""A module taken apart: which statements bind which names, and what each of them reads. Sources are read, never run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from .reads import stored_in

_DOCUMENTED = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPOUND = (ast.If, ast.Try, ast.TryStar, ast.With, ast.For, ast.While, ast.Match)


class Imported(NamedTuple):
    """Where an imported name comes from. `import a.b` binds `a` to the module `a`, and runs `a.b` too."""

    module: str
    name: str = ""
    """Of what is taken out of the module; empty: the module itself."""
    runs: str = ""
    """The module that the statement imports."""


@dataclass
class Module:
    """A module of the project. Names are those of its top level; imports are those anywhere in it."""

    name: str
    path: str
    """From the folder of imports: `pkg/helpers.py`."""
    bindings: dict[str, list[ast.stmt]] = field(default_factory=dict)
    imports: dict[str, list[Imported]] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    """Modules of which it takes everything."""
    effects: list[ast.stmt] = field(default_factory=list)
    """What importing it does beside binding names."""

    @property
    def runs(self) -> Iterator[str]:
        """Modules that it imports."""
        yield from self.stars
        yield from (one.runs or one.module for found in self.imports.values() for one in found)


def parse_module(name: str, path: str, source: bytes, *, docstrings: bool) -> Module:
    """Take a module apart; its docstrings count only with `docstrings`. Raises SyntaxError, ValueError."""
    tree = ast.parse(source, path)
    if not docstrings:
        _drop_docstrings(tree)
    module = Module(name, path)
    package = name if path.endswith("__init__.py") else name.rpartition(".")[0]
    for node in ast.walk(tree):
        _note_import(module, package, node)
    for statement in tree.body:
        for bound in set(_bound(statement)):
            module.bindings.setdefault(bound, []).append(statement)
        if _acts(statement):
            module.effects.append(statement)
    return module


def _drop_docstrings(tree: ast.Module) -> None:
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and node.body and _is_text(node.body[0]):
            del node.body[0]


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


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


# -- statements of the top level ----------


def _bound(statement: ast.stmt) -> Iterator[str]:
    """Names a statement binds, imports left out: those are looked up by themselves."""
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Assign(targets=targets):
            yield from (name for target in targets for name in stored_in(target))
        case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
            yield from stored_in(target)
        case _ if type(statement).__name__ == "TypeAlias":
            yield from stored_in(statement.name)  # type: ignore[attr-defined]
        case ast.If(test=test) if _is_main(test):
            return
        case _ if isinstance(statement, _COMPOUND):
            yield from _bound_inside(statement)


def _bound_inside(statement: ast.stmt) -> Iterator[str]:
    for node in ast.iter_child_nodes(statement):
        yield from _bound_below(node)


def _bound_below(node: ast.AST) -> Iterator[str]:
    """Inside a compound statement; the scopes of functions and classes end here."""
    if isinstance(node, ast.stmt):
        yield from _bound(node)
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif not isinstance(node, ast.Lambda):
        for child in ast.iter_child_nodes(node):
            yield from _bound_below(child)


def _acts(statement: ast.stmt) -> bool:
    """Whether running it may change more than the names it binds."""
    match statement:
        case ast.Expr():
            return not _is_text(statement)
        case ast.Assign(targets=targets):
            return any(not isinstance(node, ast.Name | ast.Tuple | ast.List) for node in targets)
        case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
            return not isinstance(target, ast.Name)
        case ast.If(test=test) if _is_main(test):
            return False
        case ast.Delete() | ast.Assert() | ast.Raise():
            return True
        case _ if isinstance(statement, _COMPOUND):
            return any(_acts(inner) for inner in _inner(statement))
    return False


def _inner(statement: ast.stmt) -> Iterator[ast.stmt]:
    """The statements directly inside a compound one, those of handlers and cases too."""
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.stmt):
            yield child
        elif isinstance(child, ast.ExceptHandler | ast.match_case):
            yield from child.body


def _is_main(test: ast.expr) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(test))


def decorators_and_bases(statement: ast.stmt) -> tuple[list[ast.expr], list[ast.expr]]:
    """What is called when a definition is made; nothing for other statements."""
    if isinstance(statement, ast.ClassDef):
        return statement.decorator_list, [*statement.bases, *(one.value for one in statement.keywords)]
    return (statement.decorator_list, []) if isinstance(statement, _FUNCTIONS) else ([], [])
