"""The files of a bundle, and the project's modules among them."""

from __future__ import annotations

import ast
import hashlib
import io
import zipfile
from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from treadle.primitives.functions import CAPTURED

from .build import CAPTURED_FOLDER, MODULES
from .import_effects import effects_of
from .module_definitions import Imported, Module, Place, is_plain, parse_module, place_of
from .name_reads import Reads, reads_of

_WITH_DOCSTRINGS = (b"__doc__", b"getdoc", b"getsource")
_WITH_REGISTERS = (b"__init_subclass__", b"__subclasses__", b"metaclass")
_WITH_FILES = (b"__file__", b"__path__", b"__spec__", b"resources", b"pkgutil", b"getfile", b"getsourcefile")


class Unit(NamedTuple):
    digest: str
    reads: Reads


def digest(data: bytes) -> str:
    """128 bits suffice: the code belongs to the user, and a collision would only harm its author."""
    return hashlib.sha256(data).hexdigest()[:32]


class ProjectFiles:
    """The files of a bundle. Modules are parsed on first access."""

    def __init__(self, bundle: bytes) -> None:
        """`bundle`: see `build`; empty for a run without functions of a project."""
        entries = _entries(bundle) if bundle else {}
        self.files = dict(_below(MODULES, entries))
        self.captured = {CAPTURED + name: data for name, data in _below(CAPTURED_FOLDER, entries)}
        self._parsed: dict[str, Module | None] = {}
        self._effects: dict[str, list[ast.stmt]] = {}
        self._units: dict[tuple[str, str], Unit] = {}
        self._turns: dict[str, list[Place]] = {}

    def path(self, module: str) -> str:
        """The file of a module; empty if it is not in the project."""
        stem = module.replace(".", "/")
        return next((path for path in (f"{stem}/__init__.py", f"{stem}.py") if path in self.files), "")

    def owns(self, module: str) -> bool:
        return module.partition(".")[0] in self.tops

    @cached_property
    def tops(self) -> frozenset[str]:
        return frozenset(name.partition("/")[0].partition(".")[0] for name in self.files)

    def module(self, name: str) -> Module | None:
        """The parsed module; None if it has no source, as a folder without `__init__.py` or a compiled module."""
        if name not in self._parsed:
            path = self.path(name)
            source = self.files.get(path, b"")
            parsed = parse_module(name, path, source, self.owns, docstrings=self.docstrings) if path else None
            self._parsed[name] = parsed
        return self._parsed[name]

    @cached_property
    def modules(self) -> list[str]:
        """Every module that has a source."""
        names = (path.removesuffix(".py").removesuffix("/__init__") for path in self.files if path.endswith(".py"))
        return sorted(name.replace("/", ".") for name in names)

    def modules_of(self, package: str) -> list[str]:
        """The modules of a package and of its subpackages."""
        return [name for name in self.modules if name.startswith(f"{package}.")]

    @cached_property
    def docstrings(self) -> bool:
        """Whether any module of the project reads docstrings or sources, so that docstrings count too."""
        return self._mentions(_WITH_DOCSTRINGS)

    @cached_property
    def registers(self) -> bool:
        """Whether the project has classes that register their subclasses."""
        return self._mentions(_WITH_REGISTERS)

    def _mentions(self, words: Iterable[bytes]) -> bool:
        sources = [data for name, data in self.files.items() if name.endswith(".py")]
        return any(word in source for source in sources for word in words)

    def effects(self, module: Module) -> list[ast.stmt]:
        """Statements with effects other than binding names, executed on import."""
        if module.name not in self._effects:
            self._effects[module.name] = effects_of(module, self.owns, registers=self.registers)
        return self._effects[module.name]

    def unit(self, module: Module, name: str, statements: Sequence[ast.stmt], imports: Sequence[Imported]) -> Unit:
        """The digest and reads of a name's statements and imports, computed once for all functions that reach them."""
        key = (module.name, name)
        if key not in self._units:
            turns = self._turns_of(module)
            places = [bisect(turns, place_of(one)) for one in statements if not is_plain(one)]
            text = "\n".join([*map(ast.dump, statements), *map(repr, imports), *map(str, filter(None, places))])
            self._units[key] = Unit(digest(text.encode()), reads_of(*statements))
        return self._units[key]

    def _turns_of(self, module: Module) -> list[Place]:
        """Places of the statements that may rebind a name. A definition before such a statement may differ from the
        same text after it."""
        if module.name not in self._turns:
            again = [one for found in module.bindings.values() for one in found[1:]]
            self._turns[module.name] = sorted({*map(place_of, [*again, *self.effects(module)])})
        return self._turns[module.name]

    def data_files(self, module: Module) -> list[str]:
        """Data files of all packages if the module looks up a folder and may read them; otherwise none."""
        return self._data if any(word in self.files[module.path] for word in _WITH_FILES) else []

    @cached_property
    def _data(self) -> list[str]:
        return [name for name in self.files if not name.endswith(".py")]

    @cached_property
    def _by_stem(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name in self._data:
            folder, slash, file = name.rpartition("/")
            found.setdefault(f"{folder}{slash}{file.partition('.')[0]}", []).append(name)
        return found

    def files_of(self, module: str) -> list[str]:
        """Files of a module without a source."""
        return self._by_stem.get(module.replace(".", "/"), [])


def _below(folder: str, entries: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
    return ((name.removeprefix(f"{folder}/"), data) for name, data in entries.items() if name.startswith(f"{folder}/"))


def _entries(bundle: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}
