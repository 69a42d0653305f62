"""An array whose rows are divided among shards: a parameter server (Li et al., OSDI 2014).

    weights = keepers.array("weights", 2**20, rule=Adagrad(0.1))
    weights.push(indices, gradients)
    weights.pull(indices)

The keepers apply the rule. This is the side of the caller: it divides rows among the parts, and sends their calls.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import count, groupby, zip_longest
from typing import Any, NamedTuple, TypeVar

from ..errors import UsageError
from .catalog.arrays import Addition, ArrayPart, Place, UpdateRule
from .client_session import Access
from .handle import Handle, PostedCall, create, drop_target, post, session_of

T = TypeVar("T")
Indices = Any
"""Row numbers: a slice without a step, or one-dimensional integers in any order."""
_PIECE = 4 << 20
"""Bytes of values in one call, at most."""
_PART = 60 << 20
"""Bytes of a part, with what its rule keeps."""


class ShardedArray:
    """The rows of one array at the keepers of all shards; see `Keepers.array`. Picklable, and for any threads.

    Each part answers the calls of a process in their order: a pull sees the pushes before it. Between processes there
    is no order, and a call that concerns several parts is not one step.
    """

    def __init__(self, name: str, shape: tuple[int, ...], dtype: str, parts: Sequence[Handle[Any]]) -> None:
        """Made by `create_array`."""
        self.name, self.shape, self.dtype, self._parts = name, shape, dtype, parts
        self._step = -(-shape[0] // len(parts))
        self._row_bytes = _row_bytes(shape, dtype)
        self._lanes: dict[int, tuple[Lane, ...]] = {}
        """By process: a fork has sessions of its own."""

    def __reduce__(self) -> Any:
        return ShardedArray, (self.name, self.shape, self.dtype, self._parts)

    def __repr__(self) -> str:
        return f"<ShardedArray {self.name} of {self.shape}>"

    def push(self, indices: Indices, values: Any) -> None:
        """Change rows by the rule. Returns before the keepers have answered; the next call waits for them.

        Equal indices in one push count as one, with the sum of their values. Raises IndexError, ValueError for values
        of another shape, and the error of an earlier push.
        """
        import numpy as np

        rows, values = self._checked(indices, values)
        if not isinstance(rows, slice):
            unique, place = np.unique(rows, return_inverse=True)
            if len(unique) < len(rows):
                summed = np.zeros((len(unique), *values.shape[1:]), values.dtype)
                np.add.at(summed, place, values)
                rows, values = unique, summed
        self._send("push", rows, values)

    def put(self, indices: Indices, values: Any) -> None:
        """Replace rows; otherwise as `push`. Of equal indices the last one counts."""
        self._send("put", *self._checked(indices, values))

    def prefetch(self, indices: Indices = slice(None)) -> RowsAhead:
        """Begin a pull, whose rows `result` of the returned object has. Raises IndexError."""
        import numpy as np

        rows = self._rows(indices)
        into = np.empty(self._shape_of(rows), self.dtype)
        ahead = []
        for pieces in self._pieces(rows):
            lane, calls = self._lane(pieces[0].part), [PartCall("pull", piece.place) for piece in pieces]
            lane.pull(calls)
            ahead.append([(piece.at, lane, call) for piece, call in zip(pieces, calls, strict=True)])
        return RowsAhead(self, into, _in_turns(ahead))

    def pull(self, indices: Indices = slice(None)) -> Any:
        """Return rows as a NumPy array, in the order of the indices. Raises as `prefetch`, and the error of a push."""
        return self.prefetch(indices).result()

    def flush(self) -> None:
        """Wait until the keepers have answered all pushes of this process. Raises the error of one that failed."""
        for lane in self._lanes.get(os.getpid(), ()):
            lane.settle()

    def drop(self) -> None:
        """Remove the array. Later calls raise ObjectMissing."""
        for part in self._parts:
            drop_target(part)

    # -- rows

    def _checked(self, indices: Indices, values: Any) -> tuple[Any, Any]:
        """The rows, and their values as an array."""
        import numpy as np

        rows = self._rows(indices)
        return rows, np.broadcast_to(np.asarray(values, self.dtype), self._shape_of(rows))

    def _shape_of(self, rows: Any) -> tuple[int, ...]:
        return rows.stop - rows.start if isinstance(rows, slice) else len(rows), *self.shape[1:]

    def _rows(self, indices: Indices) -> Any:
        """The indices as a slice with bounds, or as an array."""
        import numpy as np

        if isinstance(indices, slice):
            first, end, step = indices.indices(self.shape[0])
            if step != 1:
                raise IndexError(f"a slice of {self.name} has the step {step}: give the indices one by one")
            return slice(first, max(first, end))
        rows = np.asarray(indices)
        if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
            raise IndexError(f"indices of {self.name} are one-dimensional integers, not {rows.dtype}{rows.shape}")
        if rows.size and not 0 <= int(rows.min()) <= int(rows.max()) < self.shape[0]:
            raise IndexError(f"{self.name} has rows 0 to {self.shape[0] - 1}, not {rows.min()} to {rows.max()}")
        return rows

    def _pieces(self, rows: Any) -> list[list[_Piece]]:
        """The calls for these rows, each of at most `_PIECE` bytes, by part."""
        most = max(1, _PIECE // self._row_bytes)
        pieces = self._slices(rows, most) if isinstance(rows, slice) else self._gathered(rows, most)
        return [list(of_part) for _, of_part in groupby(pieces, lambda piece: piece.part)]

    def _slices(self, rows: slice, most: int) -> Iterator[_Piece]:
        first = rows.start
        while first < rows.stop:
            part, offset = first // self._step, first - first % self._step
            end = min(rows.stop, offset + self._step, first + most)
            yield _Piece(part, (first - offset, end - offset), slice(first - rows.start, end - rows.start))
            first = end

    def _gathered(self, rows: Any, most: int) -> Iterator[_Piece]:
        import numpy as np

        parts = len(self._parts)
        order = np.argsort(rows, kind="stable") if parts > 1 else np.arange(len(rows))
        bounds = np.searchsorted(rows[order], self._step * np.arange(parts + 1)) if parts > 1 else [0, len(rows)]
        for part in range(parts):
            for first in range(bounds[part], bounds[part + 1], most):
                at = order[first : min(first + most, bounds[part + 1])]
                yield _Piece(part, (rows[at] - part * self._step).astype(np.int32).tobytes(), at)

    def _send(self, method: str, rows: Any, values: Any) -> None:
        for part, place, at in _in_turns(self._pieces(rows)):
            self._lane(part).push(PartCall(method, place, values[at].tobytes()))

    def _lane(self, part: int) -> Lane:
        process = os.getpid()
        if process not in self._lanes:
            lanes = self._lanes.setdefault(process, tuple(map(Lane, self._parts)))
            weakref.finalize(self, _leave, process, lanes)  # also when the process exits
        return self._lanes[process][part]


class RowsAhead:
    """Rows of a ShardedArray that are on their way."""

    def __init__(self, array: ShardedArray, into: Any, pieces: list[tuple[Any, Lane, PartCall]]) -> None:
        self._array, self._into, self._pieces = array, into, deque(pieces)  # the lanes end with the array

    def result(self) -> Any:
        """Return the rows as an array, when they are there. Raises the errors of a handle's methods."""
        import numpy as np

        while self._pieces:
            at, lane, call = self._pieces[0]
            rows = self._into[at]
            self._into[at] = np.frombuffer(lane.result(call), rows.dtype).reshape(rows.shape)
            self._pieces.popleft()
        return self._into


class _Piece(NamedTuple):
    """A call: the part, its rows, and where they are among all rows of the caller."""

    part: int
    place: Place
    at: Any


def _in_turns(parts: list[list[T]]) -> list[T]:
    """The first of each part, the second of each part, and so on: the keepers work in parallel."""
    return [one for turn in zip_longest(*parts) for one in turn if one is not None]


class PartCall:
    """A call of a part's method, and its answer."""

    def __init__(self, method: str, *arguments: Any) -> None:
        self.method, self.arguments = method, arguments
        self.answer: Future[Any] = Future()


class Lane:
    """The calls of this process to one part, in order: one is on its way, and no thread waits for it."""

    def __init__(self, part: Handle[Any]) -> None:
        self._part, self._session = part, session_of(part)
        self._lock, self._is_busy = threading.RLock(), False
        self._calls: deque[PartCall] = deque()
        self._posted: PostedCall | None = None
        """The first of the calls."""
        self._pushed: Future[Any] | None = None
        """The last push, unless its error was raised."""

    def push(self, call: PartCall) -> None:
        """Send a call, after the answers to earlier ones. Raises the error of the push before it."""
        with self._alone():
            self._settle()
            self._pushed = call.answer
            self._calls.append(call)
            self._post()

    def pull(self, calls: Iterable[PartCall]) -> None:
        """As `push`, for calls whose answers `result` will wait for: the first is sent, and each when it can be."""
        with self._alone():
            self._settle()
            self._calls.extend(calls)
            self._post()

    def result(self, call: PartCall) -> Any:
        """Wait for a call; returns its result or raises its error."""
        with self._alone():
            while not call.answer.done():
                self._collect()
        return call.answer.result()

    def settle(self) -> None:
        """Wait for all calls. Raises the error of a push."""
        with self._alone():
            self._settle()

    def close(self) -> None:
        with self._alone():
            self._session.close()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with self._lock:
            if self._is_busy:
                text = f"a signal handler calls {self._part} during another call of this array"
                raise UsageError(text, "Let the handler set a flag, and call the array afterwards.")
            self._is_busy = True
            try:
                yield
            finally:
                self._is_busy = False

    def _settle(self) -> None:
        while self._posted is not None:
            self._collect()
        pushed, self._pushed = self._pushed, None
        if pushed is not None:
            pushed.result()

    def _post(self) -> None:
        while self._calls and self._posted is None:
            call = self._calls[0]
            try:
                self._posted = post(self._session, self._part, call.method, *call.arguments)
            except Exception as error:  # noqa: BLE001 - for its caller
                self._calls.popleft().answer.set_exception(error)

    def _collect(self) -> None:
        """Receive the answer to the first call, and send the next one."""
        assert self._posted is not None
        (posted, self._posted), call = (self._posted, None), self._calls.popleft()
        try:
            call.answer.set_result(posted.result())
        except BaseException as error:
            call.answer.set_exception(error)
            if not isinstance(error, Exception):  # Ctrl-C
                self._pushed = None
                raise
        self._post()


def _leave(process: int, lanes: tuple[Lane, ...]) -> None:
    """The array is gone, or the process ends."""
    for lane in lanes if process == os.getpid() else ():
        lane.close()


def create_array(
    of: Access,
    name: str,
    shape: int | tuple[int, ...],
    dtype: str,
    fill: float,
    rule: UpdateRule | None,
    parts: int,
) -> ShardedArray:
    """Return the array of this name, which is made unless it exists; see `Keepers.array`."""
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if min(shape, default=0) < 1 or parts < 1:
        raise UsageError(f"{name}: {parts} parts of an array of {shape}", "Give sizes and parts of at least 1.")
    rule, step = rule or Addition(), -(-shape[0] // parts)
    if (size := step * _row_bytes(shape, dtype) * (1 + rule.kept)) > _PART:
        least = -(-size * parts // _PART)
        raise UsageError(f"{name}: a part has {size:,} bytes; {_PART:,} are allowed", f"Give parts={least} or more.")
    sizes = [min(step, shape[0] - first) for first in range(0, shape[0], step)]
    found = [_part(of, _name(of, name, part), (rows, *shape[1:]), dtype, fill, rule) for part, rows in enumerate(sizes)]
    return ShardedArray(name, shape, dtype, found)


def _part(
    of: Access, name: str, shape: tuple[int, ...], dtype: str, fill: float, rule: UpdateRule
) -> Handle[ArrayPart]:
    import numpy as np

    handle = create(of, name, ArrayPart, (shape, dtype, fill, rule), {})
    wanted = shape, np.dtype(dtype).str, type(rule).__name__
    if (known := handle.layout()) != wanted:
        raise UsageError(f"{name} exists, and is {known}, not {wanted}", "Use its settings, or another name.")
    return handle


def _name(of: Access, name: str, part: int) -> str:
    """A name that puts the part into the next shard, so that the parts use all keepers."""
    names = (f"{name}[{part}]{'+' * more}" for more in count())
    return next(one for one in names if of.shard_of(one) == part % of.shards)


def _row_bytes(shape: tuple[int, ...], dtype: str) -> int:
    import numpy as np

    size: int = np.dtype(dtype).itemsize
    for one in shape[1:]:
        size *= one
    return size
