"""The module-level names that a statement reads. Names that a function binds itself are local, by Python's rules."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

Chain = tuple[str, ...]
"""`a.b.c` as ("a", "b", "c")."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
ASKED = frozenset({"run", "started", "attempt"})
"""Attributes of `context` that differ between runs. A checkpoint is not among them: a function must return the same
result from every checkpoint."""
BUILTINS = frozenset(dir(builtins))
_IMPORTERS = ("import_module", "__import__")


class Reads(NamedTuple):
    """The names and modules that statements refer to."""

    chains: frozenset[Chain]
    modules: frozenset[str]
    """Modules imported by a literal name, as in `import_module("x")`; such a call is not a chain."""
    any_module: bool
    """A module is imported by a computed name."""
    asks: frozenset[str]
    """Attributes of a name `context` that are in ASKED."""


def reads_of(*statements: ast.stmt) -> Reads:
    """All module-level names that the statements, and the functions in them when called, may read."""
    reader = _Reader()
    for statement in statements:
        reader.visit(statement)
    return Reads(frozenset(reader.chains), frozenset(reader.modules), reader.any_module, frozenset(reader.asks))


def chain_of(node: ast.AST) -> Chain | None:
    """The names of `a.b.c`; None for any other node."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return (node.id, *reversed(names)) if isinstance(node, ast.Name) else None


class _Reader(ast.NodeVisitor):
    def __init__(self) -> None:
        self.chains: set[Chain] = set()
        self.modules: set[str] = set()
        self.any_module = False
        self.asks: set[str] = set()
        self._own: list[frozenset[str]] = []

    # -- names

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._read((node.id,))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        chain = chain_of(node)
        if chain is None:
            self.generic_visit(node)
        else:
            self._read(chain)

    def _read(self, chain: Chain) -> None:
        if chain[0] == "context":
            self.asks |= {*chain[1:2]} & ASKED
        if not any(chain[0] in names for names in self._own):
            self.chains.add(chain)
            self.any_module |= chain[:2] == ("sys", "modules")

    def visit_Call(self, node: ast.Call) -> None:
        chain = chain_of(node.func)
        if chain is not None and chain[-1] in _IMPORTERS:
            match node.args:
                case [ast.Constant(value=str(name)), *_] if not name.startswith("."):
                    self.modules.add(name)
                    self._visit_all([*node.args, *node.keywords])
                    return
            self.any_module = True
        self.generic_visit(node)

    # -- annotations

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.generic_visit(node)
        self._quoted(node.annotation)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self.generic_visit(node)
        if not self._own:  # a type, or a part of one
            self._quoted(node.slice)

    def _quoted(self, annotation: ast.expr) -> None:
        """Read the names in quoted annotations: libraries resolve them once the module is defined."""
        texts = (node.value for node in ast.walk(annotation) if isinstance(node, ast.Constant))
        for text in texts:
            if isinstance(text, str) and text not in BUILTINS:  # `Literal["eval"]` is not a call
                with suppress(SyntaxError, ValueError):
                    self.visit(ast.parse(text.strip(), mode="eval"))

    # -- scopes

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._function(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._visit_all([*node.decorator_list, *getattr(node, "type_params", ()), *defaults(node.args)])
        for annotation in filter(None, [*(one.annotation for one in _each(node.args)), node.returns]):
            self.visit(annotation)
            self._quoted(annotation)
        with self._scope({*_parameters(node.args), *_bound_in(node.body)} - _not_its_own(node.body)):
            self._visit_all(node.body)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._visit_all(defaults(node.args))
        with self._scope(_parameters(node.args)):
            self.visit(node.body)

    def generic_visit(self, node: ast.AST) -> None:
        if isinstance(node, _COMPREHENSIONS):
            self._comprehension(node)
        else:
            super().generic_visit(node)

    def _comprehension(self, node: _Comprehension) -> None:
        """The first iterable belongs to the enclosing scope."""
        self.visit(node.generators[0].iter)
        targets = {name for generator in node.generators for name in _stored_in(generator.target)}
        with self._scope(targets):
            parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
            conditions = [condition for generator in node.generators for condition in generator.ifs]
            self._visit_all([*parts, *conditions, *(generator.iter for generator in node.generators[1:])])

    @contextmanager
    def _scope(self, names: Iterable[str]) -> Iterator[None]:
        self._own.append(frozenset(names))
        try:
            yield
        finally:
            self._own.pop()

    def _visit_all(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)


def _each(arguments: ast.arguments) -> list[ast.arg]:
    several = [one for one in (arguments.vararg, arguments.kwarg) if one is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *several]


def _parameters(arguments: ast.arguments) -> set[str]:
    return {one.arg for one in _each(arguments)}


def defaults(arguments: ast.arguments) -> list[ast.expr]:
    """Default values, which are evaluated outside the function."""
    return [*arguments.defaults, *filter(None, arguments.kw_defaults)]


def _stored_in(node: ast.AST) -> set[str]:
    """Names it binds, including those in comprehensions."""
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}


def _bound_in(body: Iterable[ast.stmt]) -> set[str]:
    return {name for statement in body for name in bound(statement)}


def bound(node: ast.AST) -> Iterator[str]:
    """Names that a statement binds in its scope, except imports, which are resolved by name."""
    if isinstance(node, _SCOPES):
        if not isinstance(node, ast.Lambda):
            yield node.name
        return
    if isinstance(node, _COMPREHENSIONS):
        yield from (name for one in ast.walk(node) if isinstance(one, ast.NamedExpr) for name in _stored_in(one.target))
        return
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest
    for child in ast.iter_child_nodes(node):
        yield from bound(child)


def _not_its_own(body: Iterable[ast.stmt]) -> set[str]:
    """Names that functions declare global or import. They count as module-level names even if the function also binds
    them."""
    nodes = [node for statement in body for node in ast.walk(statement)]
    imported = (one for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for one in node.names)
    declared = {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
    return declared | {one.asname or one.name.partition(".")[0] for one in imported}
