"""Pickles for other processes, which do not run the program's file: definitions of `__main__` travel by value.

A function gets the module `__main__` of the process as its globals. A global arrives with the first function that uses
it and keeps the value that the process gave it since, as after a fork. Functions and classes at the top of the file
are sent to each process once, by the digest of their content.
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import io
import pickle
import sys
import threading
import types
from multiprocessing.reduction import ForkingPickler
from typing import Any

from cloudpickle.cloudpickle import _function_setstate

from treadle.primitives.encoding.by_value import is_plain
from treadle.primitives.encoding.by_value_pickler import BY_VALUE, ByValuePickler
from treadle.primitives.objects import Map
from treadle.primitives.objects.large_values import LARGE

from . import places

Definitions = dict[str, bytes]
"""Contents of definitions by their digests."""
_MAIN = "__main__"
_STORE = "definitions"
loads = pickle.loads


def dumps(value: object) -> bytes:
    """Return the value as bytes for `loads`. Raises the error of an object that cannot be pickled."""
    return pickle.dumps(value, 5) if is_plain(value) else _dumped(value, {})


def dumps_with_definitions(value: object) -> tuple[bytes, Definitions]:
    """Return the same for a new process, and the small definitions that it uses."""
    definitions: Definitions = {}
    return _dumped(value, definitions), definitions


def loads_with_definitions(data: bytes, definitions: Definitions) -> Any:
    """In the new process: return the value."""
    _arrived.update(definitions)
    return loads(data)


def _dumped(value: object, definitions: Definitions | None) -> bytes:
    data = io.BytesIO()
    pickler = ProcessPickler(data, protocol=5)
    pickler.definitions = definitions
    pickler.dump(value)
    return data.getvalue()


class ProcessPickler(ByValuePickler):
    """Has the reductions of multiprocessing, too: connections, methods, ctypes."""

    definitions: Definitions | None
    """Gets the small definitions that the value uses; None: the value is a definition, and has all in itself."""

    @property
    def dispatch_table(self) -> dict[type, Any]:
        ours: Any = ForkingPickler
        return {**super().dispatch_table, **ours._extra_reducers}

    def reducer_override(self, found: Any) -> Any:
        """Reduce functions and classes; everything else goes the way of pickle."""
        if not isinstance(found, BY_VALUE):
            return NotImplemented
        if found.__module__ == _MAIN:
            if self.definitions is not None and _is_at_top(found):
                return _resolved, (_digest(found, self.definitions),)
            if isinstance(found, types.FunctionType):
                _, (code, _, _, _, closure), state, *_ = super().reducer_override(found)
                return _made_in_main, (code, closure), state, None, None, _set_state
            if issubclass(found, ctypes.Structure | ctypes.Union):
                return _structure, (found.__name__, found.__bases__, _written(found))
        return super().reducer_override(found)


_incomplete: set[types.FunctionType] = set()
"""Functions that arrive, and have no globals yet."""


def _written(found: type) -> dict[str, Any]:
    """Return the attributes of a class without the fields, which ctypes makes and which cannot be pickled."""
    made = {"__dict__", "__weakref__", *(name for name, *_ in getattr(found, "_fields_", ()))}
    return {name: value for name, value in vars(found).items() if name not in made}


def _structure(name: str, bases: tuple[type, ...], written: dict[str, Any]) -> type:
    return types.new_class(name, bases, exec_body=lambda namespace: namespace.update(written))


def _is_at_top(found: Any) -> bool:
    return vars(sys.modules[_MAIN]).get(found.__qualname__) is found


def _made_in_main(code: types.CodeType, closure: Any) -> types.FunctionType:
    namespace = vars(sys.modules[_MAIN])
    present = namespace.get(code.co_name)
    if closure is None and isinstance(present, types.FunctionType) and present.__code__ == code:
        return present
    made = types.FunctionType(code, namespace, None, None, closure)
    _incomplete.add(made)
    return made


def _set_state(function: types.FunctionType, state: Any) -> None:
    if function not in _incomplete:
        return
    _incomplete.remove(function)
    namespace = function.__globals__
    names = state[1]["__globals__"]
    state[1]["__globals__"] = {name: value for name, value in names.items() if name not in namespace}
    _function_setstate(function, state)


# -- definitions by digest

_digests: dict[int, tuple[Any, str, Definitions]] = {}
"""By the id of a definition of this process: itself, the digest under which it was sent last, and its content."""
_definitions: dict[str, Any] = {}
_arrived: Definitions = {}
"""The contents that came with this process."""
_lock = threading.RLock()
atexit.register(_digests.clear)  # they hold the globals of the program, which are cleared before modules are
atexit.register(_definitions.clear)


def forget_digests() -> None:
    """A process starts: it gets the globals that definitions use now."""
    with _lock:
        _digests.clear()


def _digest(found: Any, definitions: Definitions) -> str:
    """Return the digest of a definition that is at the keeper. Adds its content, if it is small."""
    with _lock:
        if id(found) not in _digests:
            body = _dumped(found, None)
            digest = hashlib.blake2b(body, digest_size=16).hexdigest()
            _digests[id(found)] = found, digest, {digest: body} if len(body) <= LARGE else {}
            if digest not in _definitions:
                _definitions[digest] = found
                store = places.named(_STORE, Map)
                if not store.has(digest):
                    store.put(digest, places.packed(body))
        _, digest, content = _digests[id(found)]
        definitions.update(content)
        return digest


def _resolved(digest: str) -> Any:
    with _lock:
        if digest not in _definitions:
            body = _arrived.pop(digest, b"")
            found = loads(body or places.unpacked(places.named(_STORE, Map).get(digest), keep=True))
            _definitions[digest] = vars(sys.modules[_MAIN]).setdefault(found.__qualname__, found)
            _digests.setdefault(id(_definitions[digest]), (_definitions[digest], digest, {}))
        return _definitions[digest]
