"""The dependencies of one function: names found in modules, followed until no new names appear.

If the source does not determine the dependency (`eval`, `globals`, `from x import *` of an unknown module, a module
used as a value), the whole module counts. If it may be any module, the whole project counts.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence

from .import_graph import ENGINE
from .module_definitions import Imported, Module
from .name_reads import Chain, Reads
from .project_files import ProjectFiles, digest

_DYNAMIC = frozenset({"eval", "exec", "globals", "locals", "vars", "compile"})
_OPENERS = frozenset({"__globals__", "builtins", "__builtins__"})
"""Code that has one of these can look up any name of the module."""
_ANY_MODULE = frozenset(
    {
        ("importlib", "__import__"),
        ("importlib", "import_module"),
        ("pkgutil", "resolve_name"),
        ("runpy", "run_module"),
        ("runpy", "run_path"),
        ("sys", "modules"),
    }
)
"""Functions that can load any module."""


class DependencyGraph:
    """The dependencies of one function."""

    def __init__(self, project: ProjectFiles) -> None:
        self._project = project
        self.units: dict[str, str] = {}
        self.foreign: set[str] = set()
        """Top-level modules of neither the project nor the standard library."""
        self.asks: set[str] = set()
        self._imported: set[str] = set()
        self._whole: set[str] = set()
        self._found: dict[tuple[str, str], bool] = {}
        self._pending: list[tuple[Module, Reads]] = []

    def finish(self) -> None:
        while self._pending:
            self._read(*self._pending.pop())

    # -- entry points

    def name(self, module: str, name: str) -> None:
        """Reach a top-level name of a module."""
        if not self._project.owns(module):
            self.outside(module)
            return
        self.imports(module)
        known = self._project.module(module)
        if known is None:
            self._file_of(module)
        elif not self._defined(known, name) and not self._submodule(module, name):
            self.whole(module)

    def _everything(self) -> None:
        for name in self._project.modules:
            self.whole(name)

    def whole(self, module: str) -> None:
        """Reach everything in a module, and for a package in all its modules."""
        if not self._project.owns(module):
            self.outside(module)
            return
        if module in self._whole:
            return
        self._whole.add(module)
        self.imports(module)
        for name in self._project.modules_of(module):
            self.whole(name)
        known = self._project.module(module)
        if known is None:
            self._file_of(module)
            return
        for name in (*known.bindings, *known.imports):
            self._defined(known, name)
        for star in known.stars:
            self.whole(star)

    def imports(self, module: str) -> None:
        """Reach the effects of importing a module and its parent packages. They count for every kind of import."""
        pending = [module]
        while pending:
            name = pending.pop()
            if name in self._imported or not name:
                continue
            self._imported.add(name)
            if not self._project.owns(name):
                self.outside(name)
                continue
            pending.append(name.rpartition(".")[0])
            known = self._project.module(name)
            if known is None:
                self._file_of(name)
                continue
            pending += [one for one in known.runs if self._project.owns(one)]
            self._effects(known)

    def outside(self, module: str) -> None:
        top = module.partition(".")[0]
        if top and top not in sys.stdlib_module_names and top != ENGINE:
            self.foreign.add(top)

    # -- units

    def _effects(self, module: Module) -> None:
        if acting := self._project.effects(module):
            self._unit(module, "", acting)
        for name in self._project.data_files(module):
            self._file(name)

    def _defined(self, module: Module, name: str) -> bool:
        """Reach the definition of a name of the module; False if no readable definition exists."""
        key = (module.name, name)
        if key not in self._found:
            self._found[key] = False  # guards against circular imports
            self._found[key] = self._look_up(module, name)
        return self._found[key]

    def _look_up(self, module: Module, name: str) -> bool:
        if self._bound(module, name, ()):
            return True
        found = [star for star in module.stars if self._star(star, name)]
        if found[1:]:  # the last one counts
            self.units[f"{module.path}:{name}"] = digest(" ".join(found).encode())
        return bool(found)

    def _bound(self, module: Module, name: str, rest: Chain) -> bool:
        """Reach the binding of a name in the module, and `rest` of it; False if the name is not bound."""
        statements, imports = module.bindings.get(name, ()), module.imports.get(name, ())
        outside = [one for one in imports if not self._project.owns(one.module)]  # not defined in the project
        if statements or outside:
            self._unit(module, name, statements, outside)
        for one in imports:
            self._imported_name(one, rest)
        return bool(statements or imports)

    def _star(self, star: str, name: str) -> bool:
        """Look up a name in a module imported with `*`."""
        known = self._project.module(star) if self._project.owns(star) else None
        if known is None:
            self.outside(star)
            return False
        return self._defined(known, name) or self._submodule(star, name)

    def _submodule(self, module: str, name: str) -> bool:
        """Reach a module that is taken out of its package and used as a value."""
        if not self._project.path(f"{module}.{name}"):
            return False
        self.whole(f"{module}.{name}")
        return True

    def _unit(
        self, module: Module, name: str, statements: Sequence[ast.stmt], imports: Sequence[Imported] = ()
    ) -> None:
        key = f"{module.path}:{name}"
        if key not in self.units:
            self.units[key], reads = self._project.unit(module, name, statements, imports)
            self._pending.append((module, reads))

    def _file_of(self, module: str) -> None:
        """A module without a source: a compiled module or a folder. All its files count."""
        for name in self._project.files_of(module):
            self._file(name)

    def _file(self, name: str) -> None:
        self.units[name] = digest(self._project.files[name])

    # -- names that a unit reads

    def _read(self, module: Module, reads: Reads) -> None:
        self.asks |= reads.asks
        for chain in sorted(reads.chains):
            self._chain(module, chain)
        for name in sorted(reads.modules):
            self.whole(name)
        if reads.any_module:
            self._everything()

    def _chain(self, module: Module, chain: Chain) -> None:
        if not self._bound(module, chain[0], chain[1:]):
            self._neither(module, chain[0])
        if _OPENERS & {*chain}:
            self.whole(module.name)

    def _neither(self, module: Module, name: str) -> None:
        """Handle a name that the module neither defines nor imports by name."""
        self._defined(module, name)
        if name in _DYNAMIC:
            self.whole(module.name)
        elif name == "__import__":
            self._everything()

    def _imported_name(self, one: Imported, rest: Chain) -> None:
        """Follow an imported name. `rest` are the attributes after it: modules first, then a name."""
        module, names = one.module, [*([one.name] if one.name else []), *rest]
        if (module, *names[:1]) in _ANY_MODULE:
            self._everything()
        if one.runs:
            self.imports(one.runs)
        while names and self._project.path(f"{module}.{names[0]}"):
            package, name = self._project.module(module), names.pop(0)
            if package is not None:
                self._defined(package, name)  # the package may bind the name of its module itself
            module = f"{module}.{name}"
        if names:
            self.name(module, names[0])
        else:
            self.whole(module)
