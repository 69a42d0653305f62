"""Ranges requested ahead of the reader, within bounds, and received straight into buffers of their size."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

from ..wire import Connection, WireError
from .messages import BATCH, GONE, UNREACHED, Came, Pull, PullAnswer, Want

WINDOW = 32 << 20
"""Limit of bytes that are requested and not yet read, except for a single longer range."""
_REQUESTS = 2
"""Requests under way: while one answer is read, the next is being sent."""
_WANTS = 256
"""Ranges of one request: few enough that sending it never blocks while the server waits for the reader."""
_HUGE = 1 << 20
"""Bytes above which NumPy's memory, which uses huge pages where available, is faster to fill for the first time."""


Count = Callable[[Mapping[str, int]], None]
"""Called with the number of received bytes by their way."""


class Unreached(WireError):
    """The gateway answers, but cannot reach the member."""


def requests(wants: Sequence[Want]) -> Iterator[tuple[Want, ...]]:
    """Split the ranges, in order, into requests within their share of the window."""
    gathered: list[Want] = []
    size = 0
    for want in wants:
        length = want.length if want.length >= 0 else WINDOW
        if gathered and (len(gathered) == _WANTS or size + length > WINDOW // _REQUESTS):
            yield tuple(gathered)
            gathered, size = [], 0
        gathered.append(want)
        size += length
    if gathered:
        yield tuple(gathered)


def pull(
    connection: Connection, wants: Sequence[Want], deadline: float, count: Count, member: str, *, direct: bool
) -> Iterator[memoryview | None]:
    """Yield the bytes of each range in order; None for a missing block. Raises WireError. `member`, `direct`: see
    `Pull`.

    Requests follow the reader: at most the window is sent ahead. A reader that stops early must close the connection.
    """
    waiting = requests(wants)
    under_way: deque[tuple[Want, ...]] = deque()
    while True:
        while len(under_way) < _REQUESTS and (request := next(waiting, None)) is not None:
            connection.send(Pull(request, member, direct), deadline=deadline)
            under_way.append(request)
        if not under_way:
            return
        yield from _answers(connection, under_way.popleft(), deadline, count, member)


def allocate(length: int) -> memoryview:
    """Return memory to receive into; its contents are arbitrary."""
    if length < _HUGE:
        return memoryview(bytearray(length))
    import numpy as np

    return np.empty(length, np.uint8).data


def expect(connection: Connection, wants: Sequence[Want], deadline: float) -> tuple[tuple[int, ...], int]:
    """Return the lengths of the next answers and of the tail that follows. Raises WireError for answers that do not
    match.
    """
    first = wants[0].length
    limit = first + BATCH * 2 if first >= 0 else 1 << 62
    part, length = connection.receive_head(PullAnswer, deadline, tail_limit=limit)
    pairs = zip(wants, part.lengths, strict=False)
    wrong = any(got > want.length >= 0 for want, got in pairs) or not 0 < len(part.lengths) <= len(wants)
    if wrong or sum(max(got, 0) for got in part.lengths) != length:
        connection.close()
        raise WireError(f"{connection.name} answers what was not asked for", "Bytes were damaged on the way.")
    for want, got in zip(wants, part.lengths, strict=False):
        if got < GONE:
            connection.close()
            if got == UNREACHED:
                raise Unreached(f"{connection.name} does not reach the member that has {want.name}")
            raise WireError(f"{connection.name} cannot read {want.name}", "Its log may say why.")
    return part.lengths, length


def came(connection: Connection, length: int, deadline: float, member: str) -> Mapping[str, int]:
    """After all answers of a request, `length` bytes: return their number by their way. Raises WireError."""
    if not member:
        return {"peer": length}
    said: Came = connection.receive_head(Came, deadline)[0]
    return said.over


def _answers(
    connection: Connection, wants: Sequence[Want], deadline: float, count: Count, member: str
) -> Iterator[memoryview | None]:
    total = 0
    while wants:
        lengths, length = expect(connection, wants, deadline)
        buffer = allocate(length)
        connection.receive_into(buffer, deadline)
        buffer = buffer.toreadonly()
        total += length
        wants = wants[len(lengths) :]
        if not wants:
            count(came(connection, total, deadline, member))
        start = 0
        for got in lengths:
            yield None if got == GONE else buffer[start : start + got]
            start += max(got, 0)
