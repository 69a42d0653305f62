"""Checks that the named functions can be imported, and called as their stages call them.

Modules are imported in this process, with the document's folder first on the path. Modules from that folder are
unloaded afterwards, so that two documents may each have a `tasks.py`.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import typing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path as FilePath
from types import ModuleType
from typing import Any

from treadle.primitives.errors import UsageError
from treadle.primitives.functions import CAPTURED, FunctionInfo, describe, load

from ..diagnostics.diagnostics import Diagnostic, Path, a, did_you_mean
from ..document.document import Document
from ..graph.graph import Node, StageGraph
from ..model import MapStage, ReduceStage, ShuffleStage, Spec
from ..templates import template_paths
from .report import Report

_LIBRARIES = frozenset({"msgspec", "numpy", "pyarrow", "pydantic", "temporalio", "treadle", "typer", "yaml"})
"""Modules that are loaded before the modules of a project, here or in workers."""


@dataclass(frozen=True)
class _Use:
    """A place that names a function, and the call that its stage makes."""

    path: Path
    function: str
    positional: tuple[str, ...]
    keywords: tuple[str, ...] = ()
    context: bool = False
    """The stage passes `context=` to a function that has this parameter."""
    flat: bool | None = None
    is_map: bool = False
    objects: bool = False
    """The stage names objects, which only `context` leads to."""
    owner: str = "stage"


def check_functions(document: Document, search_path: Sequence[FilePath]) -> list[Diagnostic]:
    """Return findings about every named function, including those of sub-workflows. Skips functions taken by value, and
    documents that did not load.
    """
    if document.spec is None:
        return []
    report = Report(document)
    uses = [use for node in StageGraph(document.spec).nodes.values() for use in _uses(node)]
    uses += _object_uses(document.spec)
    uses = [use for use in uses if not _is_shadowed(report, use, search_path)]
    with _importing(search_path, {use.function.partition(":")[0] for use in uses}):
        for use in uses:
            if not use.function.startswith(CAPTURED):
                _check(report, use)
    below = (found for child in document.children.values() for found in check_functions(child, search_path))
    return list(dict.fromkeys([*report.listed(), *below]))


def _is_shadowed(report: Report, use: _Use, folders: Sequence[FilePath]) -> bool:
    """Report a project module that another module of the same name hides wherever it is imported."""
    top = use.function.partition(":")[0].partition(".")[0]
    if top not in sys.stdlib_module_names and top not in _LIBRARIES:
        return False
    own = [path for folder in folders for path in (folder / f"{top}.py", folder / top) if path.exists()]
    if own:
        owner = "Python" if top in sys.stdlib_module_names else "a library that treadle uses"
        message = f"the name of {own[0].name} is taken: '{top}' is a module of {owner}, which is loaded first"
        report.add("T407", use.path, message, f"rename {own[0].name}, such as my_{own[0].name}")
    return bool(own)


def _uses(node: Node) -> Iterator[_Use]:
    stage, path = node.stage, node.path
    match stage:
        case MapStage():
            yield _Use(
                (*path, "uses"),
                stage.uses,
                (stage.per,),
                tuple(stage.with_),
                True,
                stage.flat,
                True,
                bool(stage.objects),
            )
        case ShuffleStage():
            if isinstance(stage.by, str) and stage.by != "key":
                yield _Use((*path, "by"), stage.by, ("record",))
        case ReduceStage():
            if stage.uses is not None:
                given = ("key", "values") if stage.per == "key" else ("values",)
                yield _Use((*path, "uses"), stage.uses, given, tuple(stage.with_), True, objects=bool(stage.objects))
            if stage.finish is not None:
                arguments = tuple(stage.with_)
                yield _Use(
                    (*path, "finish"), stage.finish, ("accumulator",), arguments, True, objects=bool(stage.objects)
                )
    if isinstance(stage, (ShuffleStage, ReduceStage)) and stage.combine is not None:
        yield _Use((*path, "combine"), stage.combine, ("a", "b"))


def _object_uses(spec: Spec) -> list[_Use]:
    """The classes of objects; incomplete declarations are left out, since another check refuses them."""
    return [
        _Use(("objects", name, "uses" if one.uses else "type"), one.function, (), tuple(one.with_), owner="object")
        for name, one in spec.objects.items()
        if one.uses or one.type
    ]


def _check(report: Report, use: _Use) -> None:
    function = _load(report, use)
    if function is None or (use.owner == "object" and not _is_shared(report, use, function)):
        return
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        hint = "write `def`, and call `asyncio.run(...)` inside where something has to be awaited"
        report.add("T404", use.path, f"{use.function} is asynchronous, and nobody awaits what it gives", hint)
        return
    _check_call(report, use, function)
    if use.objects and not describe(function).takes_context:
        message = f"{use.function} has no parameter `context`, through which it would use the objects of its stage"
        report.add("T405", use.path, message, "add `*, context` to its parameters, or remove `objects`")
    if use.is_map:
        _check_flat(report, use, function, describe(function))


def _load(report: Report, use: _Use) -> Callable[..., Any] | None:
    try:
        return load(use.function)
    except UsageError as error:
        report.add(*_not_loaded(use, error.__cause__))
    except SystemExit as error:
        module = use.function.partition(":")[0]
        hint = 'move what it runs below `if __name__ == "__main__":`'
        report.add("T402", use.path, f"importing '{module}' ends the program (exit {error.code})", hint)
    return None


def _not_loaded(use: _Use, cause: BaseException | None) -> tuple[str, Path, str, str]:
    module, _, name = use.function.partition(":")
    if isinstance(cause, ModuleNotFoundError) and cause.name and f"{module}.".startswith(f"{cause.name}."):
        hint = "put it beside the document, or install its package"
        if module.endswith(".py"):
            hint = f"write `{module.removesuffix('.py')}:{name}`, without `.py`"
        return "T401", use.path, f"there is no module '{cause.name}'", hint
    if cause is not None or module not in sys.modules:
        message = f"importing '{module}' fails: {type(cause).__name__}: {cause}"
        return "T402", use.path, message, f"in the workflow's folder `python -c 'import {module}'` shows the traceback"
    found: object = sys.modules[module]
    for part in name.split("."):
        if not hasattr(found, part):
            holder = getattr(found, "__name__", module)
            public = (known for known in dir(found) if not known.startswith("_"))
            return "T403", use.path, f"'{holder}' has no '{part}'", did_you_mean(part, public)
        found = getattr(found, part)
    return "T404", use.path, f"'{name}' is {a(type(found).__name__)}, not a function", "name something to be called"


def _check_call(report: Report, use: _Use, function: Callable[..., Any]) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some built-in functions have no signature
        return
    names = list(signature.parameters)
    keywords = [*use.keywords, *(["context"] if use.context and "context" in names else [])]
    shown = ", ".join([*use.positional, *(f"{name}=" for name in use.keywords)])
    try:
        signature.bind(*use.positional, **dict.fromkeys(keywords))
    except TypeError as error:
        known = names[len(use.positional) :]
        near = [did_you_mean(name, known) for name in use.keywords if name not in names]
        hint = next(filter(None, near), f"the {use.owner} calls {use.function.rpartition(':')[2]}({shown})")
        message = f"{use.function}{signature} does not fit its {use.owner}: {error}"
        report.add("T405", use.path, message, hint)


def _is_shared(report: Report, use: _Use, found: object) -> bool:
    from treadle.primitives.objects.definitions import check_shared

    try:
        cls = check_shared(found)
    except UsageError as error:
        report.add("T408", use.path, error.message, error.hint)
        return False
    named = {path[1:] for path in template_paths(report.document.require().outputs) if path[0] == "objects"}
    if (use.path[1],) in named and not hasattr(cls, "_value"):
        hint = "give it a method `_value(self)` that returns a JSON value, or leave the object out of `outputs`"
        report.add("T408", use.path, f"objects of the class {cls.__qualname__} have no value for `outputs`", hint)
    return True


_NOT_SPLICED: tuple[type, ...] = (int, float, complex, bool, str, bytes, dict)


def _check_flat(report: Report, use: _Use, function: Callable[..., Any], info: FunctionInfo) -> None:
    path = (*use.path[:-1], "flat")
    if use.flat is False and info.flat:
        hint = "remove `flat: false`, or annotate what one record is"
        report.add("T406", path, f"{use.function} says that it returns an iterable of records", hint, key=True)
    elif use.flat is None and info.is_generator and not info.flat:
        hint = "write `flat: true`, or annotate it with `Iterator[...]`"
        report.add("T406", use.path, f"{use.function} is a generator, and a generator is not a record", hint)
    elif use.flat and (kind := _single(function)):
        message = f"{use.function} says that it returns one {kind}, which is not spliced"
        report.add("T406", path, message, "remove `flat: true`, or annotate it with `Iterator[...]`", key=True)


def _single(function: Callable[..., Any]) -> str:
    """Return the name of the return annotation when its values cannot be iterables of records; otherwise ""."""
    try:
        annotation: Any = inspect.signature(function).return_annotation
    except (TypeError, ValueError):
        return ""
    head = annotation.partition("[")[0].strip() if isinstance(annotation, str) else annotation
    for kind in _NOT_SPLICED:
        if head in (kind, kind.__name__) or typing.get_origin(head) is kind:
            return kind.__name__
    return ""


@contextmanager
def _importing(folders: Sequence[FilePath], modules: set[str]) -> Iterator[None]:
    """Put the folders first on the path, and restore the path and the modules afterwards. Prints go to stderr."""
    roots = [str(folder.resolve()) for folder in folders]
    tops = {module.partition(".")[0] for module in modules if _is_local(roots, module.partition(".")[0])}
    hidden = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in tops}
    path, before = list(sys.path), set(sys.modules)
    sys.path[:0] = roots
    importlib.invalidate_caches()
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - before:
            if _is_from(roots, sys.modules[name]):
                del sys.modules[name]
        sys.modules.update(hidden)


def _is_local(roots: Sequence[str], top: str) -> bool:
    return any(FilePath(root, f"{top}.py").exists() or FilePath(root, top).is_dir() for root in roots)


def _is_from(roots: Sequence[str], module: ModuleType) -> bool:
    file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), "")
    return any(str(file).startswith(root + "/") for root in roots)
