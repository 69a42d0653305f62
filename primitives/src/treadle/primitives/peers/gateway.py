"""Access to blocks of members that cannot be dialled and cannot dial this member, for all processes of a host.

    reader ── Pull(member) ──> its host's server ── gateway ══ path ══ gateway ── folder of the other host
                                                       └── coordinator, store ──┘

The gateway asks over a path that both sides dialled (`hole_punching`), once there is one. Until then the coordinator
relays the request, and the answer returns the same way, or through the store when it is larger. `request_router`
decides, without I/O.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ..coordinator.messages import Dial, FromMember, Refused, Relay, Relayed, ToMember
from ..errors import StoreError, TreadleError
from ..hole_punching import Reacher, Schedule
from ..hole_punching.machine import SCHEDULE
from ..hole_punching.port_reuse import Endpoint
from ..stores.shared_memory import HostFolder
from ..stores.store import Store
from ..wire import Connection, WireError
from ..wire.message_codec import decoder, encode_head
from . import request_router, store_relay
from .duplex import BothWays
from .messages import BATCH, PIECE, UNREACHED, Ask, AskAnswer, Came, Pull, PullAnswer, Want
from .request_router import Asks, Patience
from .responses import ResponseBatch, answer_ask

if TYPE_CHECKING:
    from ..wire import Identity

RELAYED = 32 << 10
"""Largest answer that the coordinator relays, in bytes; larger ones go through the store."""
_NAMES = 32 << 10
"""Bytes of names in one request, which the coordinator may have to relay."""
_WANTS = 256
"""Limit of ranges in one request."""
_PATIENCE = 60.0
"""Seconds in which a reader must accept each part of an answer."""
_ANSWERING = 4
"""Relayed requests that are answered at a time."""
_WAITING = 256
"""Relayed requests that may wait. Further ones are dropped, and their senders ask again."""
_ask_or_answer: Callable[[bytes, str], Ask | AskAnswer] = decoder(Ask | AskAnswer)


class Membership(NamedTuple):
    """A membership in a coordinator's session."""

    name: str
    session: str
    key: bytes
    """The key of the session."""
    say: Callable[[FromMember], None]
    """Sends a message to the coordinator without blocking. A lost message is repeated."""
    tls: Identity | None = None
    """Needed where the coordinator's connections are encrypted."""


class _Heard(NamedTuple):
    answer: AskAnswer
    data: memoryview
    over: str
    """The way of the answer: `path` or `relayed`."""


class Gateway:
    """Thread-safe. Pass every message of the coordinator to `heard`; `forward` is for the host's server."""

    def __init__(
        self,
        host: HostFolder,
        key_of: Callable[[str], bytes],
        membership: Membership,
        *,
        schedule: Schedule = SCHEDULE,
        patience: Patience | None = None,
    ) -> None:
        """`host`: the folder whose blocks any member may read; `key_of` returns the key of a run."""
        self.name = membership.name
        self._host, self._key_of, self._say = host, key_of, membership.say
        self._reacher = Reacher(
            membership.name,
            membership.session,
            membership.key,
            ask=membership.say,
            opened=self._opened,
            tls=membership.tls,
            schedule=schedule,
        )
        self._stores: dict[str, Store] = {}
        self._asks = Asks(patience)
        self._numbers = itertools.count()
        self._asked: dict[int, tuple[str, Ask]] = {}
        """Members and the requests sent to them, by number."""
        self._answers: dict[int, _Heard | WireError] = {}
        self._paths: dict[str, BothWays] = {}
        self._open: set[BothWays] = set()
        self._changed = threading.Condition()
        self._answering = ThreadPoolExecutor(_ANSWERING, "treadle-gateway")
        self._room = threading.Semaphore(_ANSWERING + _WAITING)
        self._closed = False

    def know(self, run: str, store: Store) -> None:
        """Set the run's store, for answers that cannot be sent directly."""
        self._stores[run] = store

    def heard(self, message: ToMember, source: Endpoint) -> None:
        """Handle a message of the coordinator, received over a connection with this local address. Does not block."""
        match message:
            case Dial():
                self._reacher.dial(message, source)
            case Refused(member, reason):
                self._do(lambda: self._asks.refused(member, reason))
            case Relayed(member, body):
                with contextlib.suppress(WireError, RuntimeError):  # RuntimeError: the gateway is closed
                    self._relayed(member, _ask_or_answer(body, member))

    def close(self) -> None:
        """Fail all waiting requests, and answer no more. May be called again."""
        self._reacher.close()
        with self._changed:
            self._closed = True
            paths = list(self._open)
        self._do(self._asks.closed)
        for path in paths:
            path.close()
        for path in paths:
            path.join()
        self._answering.shutdown(cancel_futures=True)

    # -- for readers

    def forward(self, connection: Connection, request: Pull) -> None:
        """Answer a reader of this host with data from the member that the request names. Raises WireError."""
        batch, member, came = ResponseBatch(connection), request.member, Counter[str]()
        for wants in cut(request.wants):
            try:
                lengths, data = self.ask(member, connection.run, wants, came, direct=request.direct)
            except WireError:
                lengths, data = (UNREACHED,) * len(wants), memoryview(b"")
            for want, length in zip(wants, lengths, strict=True):
                here, data = data[: max(length, 0)], data[max(length, 0) :]
                if length > BATCH:
                    batch.flush()
                    rest = self._rest(member, connection.run, want, len(here), length, came)
                    deadline = time.monotonic() + _PATIENCE * (1 + length // PIECE)
                    connection.send_pieces(
                        PullAnswer((length,)), itertools.chain((here,), rest), length, deadline=deadline
                    )
                else:
                    batch.add(length, bytes(here))
        batch.flush()
        connection.send(Came(dict(+came)), deadline=time.monotonic() + _PATIENCE)

    def ask(
        self, member: str, run: str, wants: Sequence[Want], came: Counter[str], *, direct: bool = False
    ) -> tuple[tuple[int, ...], memoryview]:
        """Return the number of bytes of each range, and the first PIECE bytes of them. Raises WireError when it gives
        up.

        `came` counts the bytes by their way. `direct`: use a path, and raise when there is none.
        """
        number = next(self._numbers)
        self._asked[number] = member, Ask(number, run, tuple(wants))
        try:
            answer, data, over = self._answer_to(number, member, direct)
        finally:
            del self._asked[number]
        if answer.stored:
            data, over = self._taken(run, answer.stored), "stored"
        expected = min(sum(max(length, 0) for length in answer.lengths), PIECE)
        if UNREACHED in answer.lengths or (len(answer.lengths), len(data)) != (len(wants), expected):
            raise _unreached(member, "it could not send what was asked for")
        came[over] += len(data)
        return answer.lengths, data

    def _rest(
        self, member: str, run: str, want: Want, done: int, length: int, came: Counter[str]
    ) -> Iterator[memoryview]:
        while done < length:
            piece = Want(want.name, want.offset + done, min(PIECE, length - done))
            data = self.ask(member, run, [piece], came)[1]
            if not data:
                raise _unreached(member, f"{want.name} became shorter")
            done += len(data)
            yield data

    def _answer_to(self, number: int, member: str, direct: bool) -> _Heard:
        with self._changed:
            if self._closed:
                raise _unreached(member, "this member ends")
            self._perform(self._asks.ask(number, member, time.monotonic(), direct=direct))
            while number not in self._answers:
                self._changed.wait(max(0.0, self._asks.wakes_at() - time.monotonic()))
                self._perform(self._asks.tick(time.monotonic()))
            found = self._answers.pop(number)
        if isinstance(found, WireError):
            raise found
        return found

    def _taken(self, run: str, token: str) -> memoryview:
        try:
            return store_relay.take(self._stores[run], run, self._key_of(run), token)
        except (KeyError, TreadleError) as error:
            raise WireError(f"what a member left in the store cannot be had: {error}") from error

    # -- instructions

    def _do(self, decide: Callable[[], list[request_router.Instruction]]) -> None:
        with self._changed:
            self._perform(decide())

    def _perform(self, instructions: list[request_router.Instruction]) -> None:
        """Carry out instructions, with the lock held; does not block."""
        for one in instructions:
            match one:
                case request_router.Over(number):
                    member, ask = self._asked[number]
                    self._paths[member].ask(ask)
                case request_router.RelayRequest(number):
                    member, ask = self._asked[number]
                    self._say(Relay(member, encode_head(ask)))
                case request_router.FindPath(member):
                    self._reacher.want(member)
                case request_router.HangUp(member):
                    self._paths.pop(member).close()
                case request_router.FailRequest(number, reason):
                    self._answers[number] = _unreached(self._asked[number][0], reason)
                    self._changed.notify_all()  # only here: otherwise waiting threads would keep waking each other

    # -- messages of other members

    def _relayed(self, member: str, message: Ask | AskAnswer) -> None:
        if not isinstance(message, Ask):
            self._heard(member, message, memoryview(message.data), "relayed")
        elif self._room.acquire(blocking=False):
            self._answering.submit(self._answer_relayed, member, message)

    def _heard(self, member: str, answer: AskAnswer, data: memoryview, over: str) -> None:
        with self._changed:
            asked, _ = self._asked.get(answer.number, ("", None))
            if asked == member and self._asks.answered(answer.number):
                self._answers[answer.number] = _Heard(answer, data, over)
                self._changed.notify_all()
            elif answer.stored and answer.run in self._stores:  # another answer to a repeated request came first
                self._answering.submit(store_relay.remove, self._stores[answer.run], answer.run, answer.stored)

    def _answer_relayed(self, member: str, ask: Ask) -> None:
        try:
            answer, data = answer_ask(ask, self._host)
            if sum(map(len, data)) <= RELAYED:
                answer = msgspec.structs.replace(answer, data=b"".join(data))
            else:
                answer = self._left(ask, answer, data)
            self._say(Relay(member, encode_head(answer)))
        finally:
            self._room.release()

    def _left(self, ask: Ask, answer: AskAnswer, data: list[bytes]) -> AskAnswer:
        try:
            stored = store_relay.leave(self._stores[ask.run], ask.run, self._key_of(ask.run), data)
        except (KeyError, StoreError):
            return msgspec.structs.replace(answer, lengths=(UNREACHED,) * len(ask.wants))
        return msgspec.structs.replace(answer, stored=stored, run=ask.run)

    # -- paths

    def _opened(self, member: str, connection: Connection) -> None:
        path = BothWays(
            connection,
            answer=lambda ask: answer_ask(ask, self._host),
            heard=lambda answer, data: self._heard(member, answer, data, "path"),
            moved=lambda: self._moved(member),
            ended=lambda path: self._ended(member, path),
        )
        with self._changed:
            if self._closed:
                connection.close()
                return
            try:
                path.start()
            except RuntimeError:  # too many threads: requests are relayed
                return
            older = self._paths.pop(member, None)
            self._perform(self._asks.ended(member, time.monotonic()))
            self._paths[member] = path
            self._open.add(path)
            self._asks.opened(member, time.monotonic())
        if older is not None:
            older.close()

    def _moved(self, member: str) -> None:
        with self._changed:
            self._asks.moved(member, time.monotonic())

    def _ended(self, member: str, path: BothWays) -> None:
        with self._changed:
            self._open.discard(path)
            if self._paths.get(member) is path:
                del self._paths[member]
                self._perform(self._asks.ended(member, time.monotonic()))


def cut(wants: Sequence[Want]) -> Iterator[tuple[Want, ...]]:
    """Split ranges, in order, into requests whose answers have at most PIECE bytes, except for a single
    larger range.
    """
    gathered: list[Want] = []
    size = names = 0
    for want in wants:
        length, name = want.length if want.length >= 0 else PIECE, len(want.name.encode())
        if gathered and (size + length > PIECE or names + name > _NAMES or len(gathered) == _WANTS):
            yield tuple(gathered)
            gathered, size, names = [], 0, 0
        gathered.append(want)
        size, names = size + length, names + name
    if gathered:
        yield tuple(gathered)


def _unreached(member: str, why: str) -> WireError:
    return WireError(f"member {member} is out of reach: {why}", "Its blocks are read elsewhere, or made again.")
