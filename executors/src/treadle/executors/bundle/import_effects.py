"""The effects of importing a module other than binding names. They count for every importer of the module.

Statements that only define names count only through these names. Calls and decorators are assumed to have other
effects, except for calls and decorators of the standard library, and calls of third-party distributions. Objects made
with treadle are workflows, which change no function.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from .import_graph import ENGINE
from .module_definitions import Module, is_text, root_of
from .name_reads import BUILTINS, bound, defaults

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def effects_of(module: Module, owns: Callable[[str], bool], *, registers: bool) -> list[ast.stmt]:
    """The statements that may change more than the names they bind.

    `owns` tests whether a module is part of the project; `registers`: the project has classes that register their
    subclasses.
    """
    workflow = _workflow_of(module)

    def is_ours(node: ast.expr) -> bool:
        root = root_of(node)
        if root in workflow:
            return False
        if root in module.bindings or isinstance(node, ast.Lambda):
            return True
        if root in module.imports or root in BUILTINS:
            return any(owns(one.module) for one in module.imports.get(root, ()))
        return bool(root) and any(map(owns, module.stars))

    def acts(node: ast.AST) -> bool:
        match node:
            case ast.Expr(value=value):
                return not is_text(node) and root_of(value) not in workflow
            case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()):
                return True
            case ast.AugAssign() | ast.Delete() | ast.Assert() | ast.Raise():
                return True
            case ast.Call(func=function):
                return is_ours(function)
            case ast.ClassDef(bases=bases, keywords=keywords) if registers and (bases or keywords):
                return True
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                return any(is_ours(one) or module.is_foreign(one, owns) for one in node.decorator_list)
        return False

    return [one for one in module.statements if any(map(acts, _executed(one)))]


def _workflow_of(module: Module) -> set[str]:
    """Names imported from treadle, and names of objects made with it."""
    found = {name for name, imported in module.imports.items() if all(_is_engine(one.module) for one in imported)}
    for node in chain.from_iterable(map(_executed, module.statements)):
        match node:
            case ast.Assign(value=value) | ast.withitem(context_expr=value, optional_vars=ast.expr()):
                names = set(bound(node))
                found = found | names if root_of(value) in found else found - names
    return found


def _is_engine(module: str) -> bool:
    return module.partition(".")[0] == ENGINE


def _executed(statement: ast.stmt) -> Iterator[ast.AST]:
    """The statement and all nodes in it, in order, except for the bodies of functions."""
    pending: list[ast.AST] = [statement]
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, ast.Lambda):
            inner: Iterable[ast.AST] = defaults(node.args)
        elif isinstance(node, _FUNCTIONS):
            inner = [*node.decorator_list, *defaults(node.args)]
        else:
            inner = ast.iter_child_nodes(node)
        pending += reversed(list(inner))
