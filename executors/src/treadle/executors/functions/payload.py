"""What a function is given and gives back: JSON documents of bounded size, sealed under the run's key.

A task is an `Order` with the name of the object its reports go to. What does not fit into a payload goes by reference:
the sealed order is put into the store, and its name and place are sent, sealed; reports are read from their object.
A call that lasts is a `Join`; what such a member is told over its connection has the same form as a payload.
"""

from __future__ import annotations

import base64
from typing import Literal

import msgspec
from msgspec import Struct

from treadle.primitives import sealing
from treadle.primitives.encoding.decoding import decoded, known
from treadle.primitives.errors import CorruptError
from treadle.primitives.stores.store import Store

from ..program import Failure, Outcome, Report, Task

VERSION = "0.1.0"
"""Of the package: the function and its driver must have the same."""


class Order(Struct, frozen=True, tag="order"):
    """One call's work."""

    task: Task
    reports: str
    """Name of the object, in the store of the task, that gets the reports; it tells this call from every other."""
    seconds: float
    """What the call may take, whatever the provider allows."""
    inline: int
    """Bytes that the response may have."""
    repeats: bool = False
    """The provider may have run this call before."""


class Stored(Struct, frozen=True, tag="stored"):
    """The order is in a store, since it is too long for a payload."""

    store: str
    name: str


class Join(Struct, frozen=True, tag="join"):
    """Become a member of a coordinator, and do the tasks that it has for this member (`treadle.executors.resident`)."""

    coordinator: str
    """`tcp://host:port` or `tls://host:port`."""
    member: str
    seconds: float
    """What the call may take, whatever the provider allows."""
    work: float
    """Seconds in which it takes tasks; after that it only serves the blocks it holds."""
    direct: bool
    """Its blocks are served to other members."""
    idle: float
    """Seconds without a task after which nobody can need it: its slot dismisses it sooner."""
    identity: str = ""
    """For TLS: a private key and its certificate (PEM), which only the provider and the function see."""
    inbound: bool = True
    """Others can dial it."""


class Blockset(Struct, frozen=True, array_like=True):
    """Blocks of one run that a member holds."""

    run: str
    store: str
    hosts: tuple[str, ...]
    """Host ids under which they are known; it is served at the address of each of them."""
    blocks: tuple[tuple[str, int], ...]
    """Names and sizes."""


class Adopt(Struct, frozen=True, tag="adopt"):
    """Pull these blocks from the member that leaves, and serve them in its place."""

    sets: tuple[Blockset, ...]


Content = Order | Stored | Join | Adopt


class Request(Struct, frozen=True):
    run: str
    """Tells which key the order is sealed with."""
    order: str
    """Base64 of the sealed `Content`."""
    version: str = VERSION


class Response(Struct, frozen=True):
    """The sealed reports, unless they are too long for it, or why nothing ran."""

    reports: str = ""
    """Base64; empty: they are in their object only."""
    problem: Literal["", "version", "key", "no key", "key source", "order", "coordinator", "copy"] = ""
    """`order`: it could not be read from the store; `coordinator`: it is out of reach; `copy`: another run of this Join
    is a member already. Not sealed: it can do no more than stop the caller."""
    version: str = VERSION

    @property
    def sealed(self) -> bytes:
        """The reports as the object would hold them; of what is no Base64 nothing, which no seal fits."""
        return _decoded(self.reports)


_ORDER = "order for a function"
_content = msgspec.msgpack.Decoder(Content)


def encode_request(order: Order, key: bytes, limit: int = 0) -> bytes:
    """The payload; an order beyond `limit` bytes (0: no limit) is put into the store. May raise StoreError."""
    run = order.task.job.run
    request = encode_content(run, order, key)
    if not limit or len(request) <= limit:
        return request
    stored = Stored(order.task.job.store, f"{order.reports}.order")
    sealing.SealedStore(Store.open(stored.store), key).put(stored.name, msgspec.msgpack.encode(order))
    return encode_content(run, stored, key)


def encode_content(run: str, content: Content, key: bytes) -> bytes:
    """The payload, whatever its length."""
    sealed = sealing.seal(key, _ORDER, msgspec.msgpack.encode(content))
    return msgspec.json.encode(Request(run, base64.b64encode(sealed).decode(), VERSION))


def decode_content(request: Request, key: bytes) -> Order | Join | Adopt:
    """`key` is that of the run which the request names, and no order of another run is believed under it: user code
    knows the key of its own run.

    Raises CorruptError unless a holder of the key sealed it; MissingError or StoreError if it went by reference.
    """
    content: Content = _content.decode(sealing.unseal(key, _ORDER, _decoded(request.order)))
    if isinstance(content, Stored):
        content = _content.decode(sealing.SealedStore(Store.open(content.store), key).get(content.name))
    if isinstance(content, Stored):
        raise CorruptError("an order in the store leads to another one", "See what else writes to the store.")
    if isinstance(content, Order) and content.task.job.run != request.run:
        raise CorruptError(f"an order of another run is sealed for {request.run}", "See what else calls the function.")
    return content


def seal_reports(order: Order, reports: list[Report], key: bytes) -> bytes:
    """As the object holds them. The seal ties them to the call: those of another are not taken for them."""
    return sealing.seal(key, order.reports, msgspec.msgpack.encode(reports))


def open_reports(name: str, sealed: bytes, key: bytes) -> list[Report]:
    """Raises CorruptError unless they were sealed for the object `name`, by this version of treadle."""
    return list(decoded(list[Outcome | Failure], name, sealing.unseal(key, name, sealed)))


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return b""


def alive_object(reports: str) -> str:
    """Written again and again by a function that takes long: the time, sealed."""
    return f"{reports}.alive"


def seal_time(reports: str, now: float, key: bytes) -> bytes:
    return sealing.seal(key, alive_object(reports), msgspec.msgpack.encode(now))


def open_time(reports: str, sealed: bytes, key: bytes) -> float:
    """Seconds since the epoch. Raises CorruptError."""
    name = alive_object(reports)
    return decoded(float, name, sealing.unseal(key, name, sealed))


def response_of(order: Order, sealed: bytes) -> Response:
    """The reports, or that they are in their object when they do not fit."""
    response = Response(base64.b64encode(sealed).decode())
    return response if len(response.reports) + _AROUND <= order.inline else Response()


def respond(order: Order, reports: list[Report], key: bytes) -> Response:
    """The reports for `take_reports`: they need an object only if they do not fit. May raise StoreError."""
    sealed = seal_reports(order, reports, key)
    response = response_of(order, sealed)
    if not response.reports:
        Store.open(order.task.job.store).put(order.reports, sealed)
    return response


def take_reports(order: Order, response: Response, key: bytes) -> list[Report]:
    """From the response, or from their object, which is removed. Raises CorruptError, MissingError, StoreError."""
    if response.reports:
        return open_reports(order.reports, response.sealed, key)
    store = Store.open(order.task.job.store)
    found = open_reports(order.reports, store.get(order.reports), key)
    store.delete([order.reports])
    return found


def decode_response(data: bytes) -> Response:
    """Whatever is no response of ours counts as an empty one: the reports are looked for in the store."""
    try:
        return msgspec.json.decode(data, type=known(Response))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Response()


_AROUND = 200
"""Bytes of a response besides the reports."""
