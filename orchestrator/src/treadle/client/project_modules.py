"""The modules that workers cannot import, because they belong to the user's project: their code travels by value."""

from __future__ import annotations

import sys
import sysconfig
from functools import cache
from pathlib import Path
from types import ModuleType

from treadle.primitives.errors import UsageError

_seen: dict[str, int] = {}
"""Name -> identity of the modules that were looked at."""


class pickling:  # not a generator, which would take twice as long: there is one for each call
    """Pickle by value, modules of the project too. Raises UsageError in place of the error of an object."""

    def __init__(self, refusal: str, hint: str) -> None:
        self._refusal, self._hint = refusal, hint

    def __enter__(self) -> None:
        take_by_value()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, UsageError):
            raise UsageError(f"{self._refusal}: {type(error).__name__}: {error}", self._hint) from error


def take_by_value() -> None:
    """Have cloudpickle write functions and classes of the project's modules by value. It costs little if no module was
    imported since the last call."""
    import cloudpickle

    if len(_seen) == len(sys.modules):
        return
    for name, module in list(sys.modules.items()):
        if _seen.get(name) != id(module):
            _seen[name] = id(module)
            if isinstance(module, ModuleType) and name == module.__name__ and _is_of_project(module):
                cloudpickle.register_pickle_by_value(module)
    for name in _seen.keys() - sys.modules.keys():
        del _seen[name]


def _is_of_project(module: ModuleType) -> bool:
    """Whether the module's file is outside the folders of Python and of installed packages."""
    file = getattr(module, "__file__", None)
    if file is None or module.__name__.partition(".")[0] in ("treadle", "__main__", "__mp_main__"):
        return False
    folders = Path(file).absolute().parents
    return not any(folder in folders for folder in _installed())


@cache
def _installed() -> tuple[Path, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple({Path(path) for path in map(sysconfig.get_paths().get, names) if path})
