"""The Python names of a workflow's parts: imported functions keep theirs, other parts get unused names."""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Iterator

from .. import __all__ as BUILDER
from ..graph.stages import all_stages, functions_of
from ..model import Spec

PYTHON = ("bool", "float", "getattr", "int", "list", "str")
"""Built-in names that the generated code uses."""


class Naming:
    """The names of one module."""

    def __init__(self, spec: Spec) -> None:
        self._taken = {"wf", *BUILDER, *PYTHON}
        self._used: set[str] = set()
        stages = dict(all_stages(spec.stages))
        named = {reference for stage in stages.values() for reference in functions_of(stage)}
        self.functions = dict(self._imported(sorted(named)))
        """Maps `module:name` to the imported name; other functions stay text."""
        self.triggers = {name: self._new(name) for name in spec.triggers}
        self.secrets = {name: self._new(name) for name in spec.secrets}
        self.inputs = {name: self._new(name) for name in spec.inputs}
        self.stages = {name: self._new(name) for name in stages}

    def builder(self, name: str) -> str:
        """Return a name of `treadle.dsl`, and import it."""
        self._used.add(name)
        return name

    def imports(self) -> list[str]:
        """Return `from module import names`, one line for each module of functions, then the used names of
        the builder.
        """
        modules: dict[str, list[str]] = {}
        for reference, name in self.functions.items():
            modules.setdefault(reference.partition(":")[0], []).append(name)
        own = [f"from {module} import {', '.join(sorted(modules[module]))}" for module in sorted(modules)]
        used = sorted(self._used, key=lambda name: (not name[0].isupper(), name))
        return [*own, *([""] if own else []), f"from treadle.dsl import {', '.join(used)}"]

    def _imported(self, references: Iterable[str]) -> Iterator[tuple[str, str]]:
        for reference in references:
            module, _, name = reference.partition(":")
            parts = (*module.split("."), name)
            if all(part.isidentifier() and not keyword.iskeyword(part) for part in parts) and name not in self._taken:
                self._taken.add(name)
                yield reference, name

    def _new(self, name: str) -> str:
        while name in self._taken or keyword.iskeyword(name):
            name += "_"
        self._taken.add(name)
        return name
