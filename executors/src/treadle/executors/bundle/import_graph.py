"""The files of a project that a module needs. Imports are found by reading the sources, without running them."""

from __future__ import annotations

import ast
import dis
import functools
import importlib.util
import io
import pickle
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from treadle.primitives.errors import UsageError

_SKIPPED_SUFFIXES = (".pyc", ".pyo")
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_CODE = (".py", ".so", ".pyd")
ENGINE = "treadle"


class ImportGraph:
    """The required modules below `roots` and all their imports; imports from elsewhere are recorded as third-party."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = [root.resolve() for root in roots]
        self.modules: set[str] = set()
        self.files: dict[str, Path] = {}
        """Path relative to the import folder -> file."""
        self.foreign: set[str] = set()
        """Other top-level modules that they import."""

    def require(self, module: str, wanted_by: str) -> None:
        """Include the module. Raises UsageError when it is neither in the project nor installed."""
        self.include(module)
        top = module.partition(".")[0]
        if top in self.foreign and _find_spec(top) is None:
            raise UsageError(
                f"no module {top!r} ({wanted_by})", "Put it beside the workflow file, or install the package it is in."
            )

    def include(self, module: str) -> None:
        """Include the top-level module or package of `module`, if it is in the project, and its imports."""
        pending = [module.partition(".")[0]]
        while pending:
            name = pending.pop()
            if name in self.modules or name in self.foreign or name == ENGINE:
                continue
            place = self._locate(name)
            if place is None:
                self.foreign.add(name)
                continue
            self.modules.add(name)
            pending += self._add(place)

    def _add(self, place: Path) -> Iterator[str]:
        """Add the files of a module or package; yield the top-level names they import."""
        for file in [place] if place.is_file() else _package_files(place):
            self.files[file.relative_to(place.parent).as_posix()] = file
            if file.suffix == ".py":
                yield from imported_names(file)

    def _locate(self, name: str) -> Path | None:
        """The file or folder of a top-level module in the project, or None."""
        for root in self._roots:
            place = _below(root, name)
            if place is not None:
                _refuse_shadow(name, place)
                return place
        return None if name in sys.stdlib_module_names else self._locate_on_path(name)

    def _locate_on_path(self, name: str) -> Path | None:
        """A project module that Python finds elsewhere on its path, such as an editable install; None for other
        modules."""
        spec = _find_spec(name)
        if spec is None:
            return None
        folders = list(spec.submodule_search_locations or ())
        place = Path(folders[0]) if folders else Path(spec.origin or "")
        resolved = place.resolve()
        ours = any(resolved.is_relative_to(root) for root in self._roots)
        return resolved if ours and place.exists() and not _INSTALLED.intersection(resolved.parts) else None


def sources_elsewhere(module: str) -> list[Path]:
    """Files of a top-level module that is on the path but not installed, such as an editable install or a folder in
    PYTHONPATH."""
    spec = _find_spec(module)
    if spec is None:
        return []
    places = [Path(place).resolve() for place in spec.submodule_search_locations or [spec.origin or ""] if place]
    theirs = [place for place in places if place.exists() and not _is_installed(place)]
    files = (file for place in theirs for file in ([place] if place.is_file() else _package_files(place)))
    return sorted(file for file in files if file.suffix in _CODE)


def _is_installed(place: Path) -> bool:
    """Whether the module is in an installer's folder, or listed in a RECORD beside it (as `--target` writes)."""
    if _INSTALLED.intersection(place.parts):
        return True
    entry = f"{place.name}{'/' if place.is_dir() else ','}"
    records = (record.read_text().splitlines() for record in place.parent.glob("*.dist-info/RECORD"))
    return any(line.startswith(entry) for lines in records for line in lines)


def imported_names(file: Path) -> Sequence[str]:
    """Top-level names of all absolute imports in the source. Raises UsageError for bad syntax."""
    try:
        return _imported(file.read_bytes(), str(file))
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{file} cannot be read: {error}", "Correct it, or move it out of the package.") from error


@functools.lru_cache(maxsize=1000)
def _imported(source: bytes, name: str) -> Sequence[str]:
    """Cached: between submissions from a notebook or a loop few files change."""
    found = (name.partition(".")[0] for node in ast.walk(ast.parse(source, name)) for name in _names(node))
    return tuple(dict.fromkeys(found))


def _names(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=str(module), level=0):
            return [module]
        case ast.Call(func=ast.Name(id="import_module" | "__import__"), args=[ast.Constant(value=str(name)), *_]):
            return [name]
        case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(name)), *_]):
            return [name]
    return []


def names_in_pickle(data: bytes) -> set[str]:
    """Top-level names of the modules that a cloudpickled function refers to, or imports when called.

    The data is unpickled, so pass only trusted bytes.
    """
    found = _Named(data)
    found.load()
    return {name.partition(".")[0] for name in found.names} - {"__main__"}


class _Named(pickle.Unpickler):
    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self.names: set[str] = set()

    def find_class(self, module: str, name: str) -> Any:
        self.names.add(module)
        found = super().find_class(module, name)
        return {"subimport": self._module, "_builtin_type": self._type}.get(name, found)

    def _module(self, name: str) -> types.ModuleType:
        self.names.add(name)
        return importlib.import_module(name)

    def _type(self, name: str) -> Any:
        return self._code if name == "CodeType" else getattr(types, name)

    def _code(self, *about: Any) -> types.CodeType:
        code = types.CodeType(*about)
        self.names.update(imported_by(code))
        return code


def imported_by(code: types.CodeType) -> Iterator[str]:
    """Modules that the code imports, without nested code."""
    return (one.argval for one in dis.get_instructions(code) if one.opname == "IMPORT_NAME")


def _below(root: Path, name: str) -> Path | None:
    """Find a module in `root` in Python's order: a package, a module, then a folder with sources (a namespace
    package)."""
    folder, module = root / name, root / f"{name}.py"
    if (folder / "__init__.py").is_file():
        return folder
    if module.is_file():
        return module
    return folder if folder.is_dir() and any(folder.rglob("*.py")) and not _is_venv(folder) else None


def _refuse_shadow(name: str, place: Path) -> None:
    if name in sys.stdlib_module_names:
        raise UsageError(
            f"{place} has the name of the module {name!r} of the standard library", "Give it another name."
        )


def _find_spec(name: str) -> importlib.machinery.ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):  # a module of this name was created without a spec
        return None


def _is_venv(folder: Path) -> bool:
    return (folder / "pyvenv.cfg").is_file()


def _package_files(folder: Path) -> Iterator[Path]:
    """Every file of a package, sorted, except hidden and compiled files and virtual environments."""
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith(".") or entry.name == "__pycache__":
            continue
        if entry.is_dir():
            if not entry.is_symlink() and not _is_venv(entry):
                yield from _package_files(entry)
        elif entry.is_file() and entry.suffix not in _SKIPPED_SUFFIXES:
            yield entry
