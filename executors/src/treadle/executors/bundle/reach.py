"""What is reached from one function: names of modules first found, then gone through until nothing new comes.

Where a text cannot say what is reached (`eval`, `globals`, `from x import *` of something unknown, a module used as a
value), the whole module counts; where any module may be meant, the whole project does.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import sys

from .definitions import Imported, Module, decorators_and_bases
from .project import Project
from .reads import Chain, chain_of, reads_of

_BUILTINS = frozenset(dir(builtins))
_DYNAMIC = frozenset({"eval", "exec", "globals", "locals", "vars", "compile"})
_ENGINE = "treadle"


class Reach:
    """What is reached from one function."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self.units: dict[str, str] = {}
        self.foreign: set[str] = set()
        """Top-level modules that are neither the project's nor the standard library's."""
        self.asks: set[str] = set()
        self._imported: set[str] = set()
        self._whole: set[str] = set()
        self._pending: list[tuple[Module, list[ast.stmt]]] = []

    def finish(self) -> None:
        while self._pending:
            module, statements = self._pending.pop()
            for statement in statements:
                self._statement(module, statement)

    # -- ways to reach

    def name(self, module: str, name: str) -> None:
        """A name of a module's top level."""
        if not self._project.owns(module):
            self.outside(module)
            return
        self.imports(module)
        known = self._project.module(module)
        if known is None:
            self._file_of(module)
        elif not self._defined(known, name) and not self._submodule(module, name):
            self.whole(module)

    def whole(self, module: str) -> None:
        """Everything in a module."""
        if not self._project.owns(module):
            self.outside(module)
            return
        if module in self._whole:
            return
        self._whole.add(module)
        self.imports(module)
        known = self._project.module(module)
        if known is None:
            self._file_of(module)
            return
        for name in (*known.bindings, *known.imports):
            self._defined(known, name)

    def imports(self, module: str) -> None:
        """A module is imported, and so are the packages around it: what that does counts, however it came about."""
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
        if top and top not in sys.stdlib_module_names and top != _ENGINE:
            self.foreign.add(top)

    # -- units

    def _effects(self, module: Module) -> None:
        acting = [*module.effects, *(one for one in _definitions(module) if self._registers(module, one))]
        if acting:
            self._unit(module, "", acting)
        for name in self._project.data_files(module):
            self._file(name)

    def _registers(self, module: Module, statement: ast.stmt) -> bool:
        """Whether making the definition may tell others of it: a decorator of the project, or a base that looks."""
        decorators, bases = decorators_and_bases(statement)
        if bases and self._project.registers:
            return True
        chains = [chain_of(one.func if isinstance(one, ast.Call) else one) for one in decorators]
        return any(chain is None or self._is_ours(module, chain) for chain in chains)

    def _is_ours(self, module: Module, chain: Chain) -> bool:
        if chain[0] in module.bindings:
            return True
        return any(self._project.owns(one.module) for one in module.imports.get(chain[0], ()))

    def _defined(self, module: Module, name: str) -> bool:
        """Reach what defines a name of the module; False when nothing that can be read does."""
        statements = module.bindings.get(name)
        if statements:
            self._unit(module, name, statements)
        for one in module.imports.get(name, ()):
            self._imported_name(one, ())
        if statements or name in module.imports:
            return True
        found = [self._star(star, name) for star in module.stars]  # all of them: the last one that has it counts
        return any(found)

    def _star(self, star: str, name: str) -> bool:
        """Look for a name in what the module takes everything of."""
        known = self._project.module(star) if self._project.owns(star) else None
        if known is None:
            self.outside(star)
            return False
        return self._defined(known, name)

    def _submodule(self, module: str, name: str) -> bool:
        """A module taken out of its package and used as a value."""
        if not self._project.path(f"{module}.{name}"):
            return False
        self.whole(f"{module}.{name}")
        return True

    def _unit(self, module: Module, name: str, statements: list[ast.stmt]) -> None:
        key = f"{module.path}:{name}"
        if key not in self.units:
            text = "\n".join(ast.dump(statement) for statement in statements)
            self.units[key] = _digest(text.encode())
            self._pending.append((module, statements))

    def _file_of(self, module: str) -> None:
        """A module without a source: compiled, or a folder, of which its files say nothing by themselves."""
        stem = module.replace(".", "/")
        for name in self._project.files:
            if name.startswith(f"{stem}.") and not name.endswith(".py"):
                self._file(name)

    def _file(self, name: str) -> None:
        self.units[name] = _digest(self._project.files[name])

    # -- what a statement reads

    def _statement(self, module: Module, statement: ast.stmt) -> None:
        reads = reads_of(statement)
        self.asks |= reads.asks
        for chain in reads.chains:
            self._chain(module, chain)
        for name in reads.modules:
            self.whole(name)
        for name in self._project.modules if reads.any_module else ():
            self.whole(name)

    def _chain(self, module: Module, chain: Chain) -> None:
        root = chain[0]
        if root in module.bindings:
            self._unit(module, root, module.bindings[root])
        if root in module.imports:
            for one in module.imports[root]:
                self._imported_name(one, chain[1:])
        elif root not in module.bindings:
            self._neither(module, root)

    def _neither(self, module: Module, name: str) -> None:
        """A name that the module neither defines nor imports by name."""
        if name in _DYNAMIC:
            self.whole(module.name)
        elif name not in _BUILTINS:
            self._defined(module, name)

    def _imported_name(self, one: Imported, rest: Chain) -> None:
        """`rest` is what follows the imported name: the way through modules, then a name."""
        module, names = one.module, [*([one.name] if one.name else []), *rest]
        if one.runs:
            self.imports(one.runs)
        while names and self._project.path(f"{module}.{names[0]}"):
            module = f"{module}.{names.pop(0)}"
        if names:
            self.name(module, names[0])
        else:
            self.whole(module)


def _definitions(module: Module) -> list[ast.stmt]:
    found = {id(one): one for statements in module.bindings.values() for one in statements}
    return list(found.values())


def _digest(data: bytes) -> str:
    """128 bits are enough where nobody gains by a collision: the code is its owner's."""
    return hashlib.sha256(data).hexdigest()[:32]
