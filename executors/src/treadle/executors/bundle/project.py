"""The files of a bundle, and the modules of the project among them."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable
from functools import cached_property

from treadle.primitives.functions import CAPTURED

from .build import CAPTURED_FOLDER, MODULES
from .definitions import Module, parse_module

_WITH_DOCSTRINGS = (b"__doc__", b"getdoc", b"getsource")
_WITH_REGISTERS = (b"__init_subclass__", b"__subclasses__", b"metaclass")
_WITH_FILES = (b"__file__", b"__path__", b"importlib.resources", b"pkgutil", b"importlib import resources")


class Project:
    """The files of a bundle. Modules are taken apart when they are first reached."""

    def __init__(self, bundle: bytes) -> None:
        """`bundle`: see `build`; empty for a run without functions of a project."""
        entries = _entries(bundle) if bundle else {}
        self.files = {name.removeprefix(f"{MODULES}/"): data for name, data in entries.items() if "/" in name}
        self.captured = {
            CAPTURED + name.partition("/")[2]: data
            for name, data in entries.items()
            if name.startswith(f"{CAPTURED_FOLDER}/")
        }
        self._parsed: dict[str, Module | None] = {}

    def path(self, module: str) -> str:
        """The file of a module; empty when it is not the project's."""
        stem = module.replace(".", "/")
        return next((path for path in (f"{stem}/__init__.py", f"{stem}.py") if path in self.files), "")

    def owns(self, module: str) -> bool:
        return module.partition(".")[0] in self.tops

    @cached_property
    def tops(self) -> frozenset[str]:
        return frozenset(name.partition("/")[0].partition(".")[0] for name in self.files)

    def module(self, name: str) -> Module | None:
        """None: there is no source of it, such as a folder without `__init__.py` or a compiled module."""
        if name not in self._parsed:
            path = self.path(name)
            source = self.files.get(path, b"")
            self._parsed[name] = parse_module(name, path, source, docstrings=self.docstrings) if path else None
        return self._parsed[name]

    @cached_property
    def modules(self) -> list[str]:
        """Every module that has a source."""
        names = (path.removesuffix(".py").removesuffix("/__init__") for path in self.files if path.endswith(".py"))
        return sorted(name.replace("/", ".") for name in names)

    @cached_property
    def docstrings(self) -> bool:
        """Whether something in the project looks at docstrings or sources, so that they count too."""
        return self._mentions(_WITH_DOCSTRINGS)

    @cached_property
    def registers(self) -> bool:
        """Whether the project has classes that know who derives from them."""
        return self._mentions(_WITH_REGISTERS)

    def _mentions(self, words: Iterable[bytes]) -> bool:
        sources = [data for name, data in self.files.items() if name.endswith(".py")]
        return any(word in source for source in sources for word in words)

    def data_files(self, module: Module) -> list[str]:
        """Files that a module which looks for its folder may read."""
        if not any(word in self.files[module.path] for word in _WITH_FILES):
            return []
        top = module.name.partition(".")[0]
        return [name for name in self.files if name.startswith(f"{top}/") and not name.endswith(".py")]


def _entries(bundle: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}
