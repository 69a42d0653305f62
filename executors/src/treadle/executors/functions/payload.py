"""Requests and responses of functions: JSON documents of bounded size, sealed under the run's key.

A task is an `Order` with the name of the object for its reports. Data that does not fit into a payload is passed by
reference. The sealed order is put into the store, and its name and location are sent, sealed; reports are read from
their object. A call that joins a coordinator is a `JoinOrder`; messages to such a member have the form of a payload
too.
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
"""Version of the package: the function and its driver must have the same version."""


class Order(Struct, frozen=True, tag="order"):
    """The work of one call."""

    task: Task
    reports: str
    """Name of the object for the reports, in the store of the task. It identifies the call."""
    seconds: float
    """Maximum seconds of the call, independent of the provider's limit."""
    inline: int
    """Maximum bytes of the response."""
    repeats: bool = False
    """The provider may have run this call before."""


class Stored(Struct, frozen=True, tag="stored"):
    """The order is in a store, because it is too long for a payload."""

    store: str
    name: str


class JoinOrder(Struct, frozen=True, tag="join"):
    """Join a coordinator as a member, and run the tasks that it sends to this member (`treadle.executors.resident`)."""

    coordinator: str
    """`tcp://host:port` or `tls://host:port`."""
    member: str
    seconds: float
    """Maximum seconds of the call, independent of the provider's limit."""
    work: float
    """Seconds in which it accepts tasks. Afterwards it only serves its blocks."""
    direct: bool
    """Its blocks are served to other members."""
    idle: float
    """Idle seconds after which the member leaves by itself. Its slot normally dismisses it sooner."""
    identity: str = ""
    """For TLS: a private key and its certificate (PEM), visible only to the provider and the function."""
    inbound: bool = True
    """Others can dial it."""


class Blockset(Struct, frozen=True, array_like=True):
    """Blocks of one run that a member holds."""

    run: str
    store: str
    hosts: tuple[str, ...]
    """Host ids of the blocks. The blocks are served at the address of each id."""
    blocks: tuple[tuple[str, int], ...]
    """Names and sizes."""


class Adopt(Struct, frozen=True, tag="adopt"):
    """Pull these blocks from a leaving member, and serve them in its place. Without blocks: only answer, once ready."""

    sets: tuple[Blockset, ...]


Content = Order | Stored | JoinOrder | Adopt


class Request(Struct, frozen=True):
    run: str
    """Identifies the key that the order is sealed with."""
    order: str
    """Base64 of the sealed `Content`."""
    version: str = VERSION


class Response(Struct, frozen=True):
    """The sealed reports, unless they are too long, or the reason why the call did not run."""

    reports: str = ""
    """Base64; empty: they are in their object only."""
    problem: Literal["", "version", "key", "no key", "key source", "order", "coordinator", "copy"] = ""
    """`order`: it could not be read from the store; `coordinator`: it cannot be reached; `copy`: another execution of
    this JoinOrder is already a member. The field is not sealed: a forged value can only stop the caller."""
    version: str = VERSION

    @property
    def sealed(self) -> bytes:
        """The reports as stored in their object. Invalid Base64 gives no bytes, which no seal matches."""
        return _decoded(self.reports)


_ORDER = "order for a function"
_content = msgspec.msgpack.Decoder(Content)


def encode_request(order: Order, key: bytes, limit: int = 0) -> bytes:
    """The payload. An order beyond `limit` bytes (0: no limit) is put into the store. May raise StoreError."""
    run = order.task.job.run
    request = encode_content(run, order, key)
    if not limit or len(request) <= limit:
        return request
    stored = Stored(order.task.job.store, f"{order.reports}.order")
    sealing.SealedStore(Store.open(stored.store), key).put(stored.name, msgspec.msgpack.encode(order))
    return encode_content(run, stored, key)


def encode_content(run: str, content: Content, key: bytes) -> bytes:
    """The payload, without a size limit."""
    sealed = sealing.seal(key, _ORDER, msgspec.msgpack.encode(content))
    return msgspec.json.encode(Request(run, base64.b64encode(sealed).decode(), VERSION))


def decode_content(request: Request, key: bytes) -> Order | JoinOrder | Adopt:
    """Decrypt the content of a request with `key`, the key of the run that the request names.

    User code knows the key of its own run, so an order of another run is rejected. Raises CorruptError unless a holder
    of the key sealed it; MissingError or StoreError if it was passed by reference.
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
    """Seal the reports for their object. The seal binds them to the call, so that no other call's reports are
    accepted."""
    return sealing.seal(key, order.reports, msgspec.msgpack.encode(reports))


def open_reports(name: str, sealed: bytes, key: bytes) -> list[Report]:
    """Raises CorruptError unless the reports were sealed for the object `name`, by this version of treadle."""
    return list(decoded(list[Outcome | Failure], name, sealing.unseal(key, name, sealed)))


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return b""


def alive_object(reports: str) -> str:
    """Name of the object with the sealed time, which a long call rewrites periodically."""
    return f"{reports}.alive"


def seal_time(reports: str, now: float, key: bytes) -> bytes:
    return sealing.seal(key, alive_object(reports), msgspec.msgpack.encode(now))


def open_time(reports: str, sealed: bytes, key: bytes) -> float:
    """Seconds since the epoch. Raises CorruptError."""
    name = alive_object(reports)
    return decoded(float, name, sealing.unseal(key, name, sealed))


def response_of(order: Order, sealed: bytes) -> Response:
    """A response with the reports if they fit; otherwise an empty one, and the reports are in their object."""
    response = Response(base64.b64encode(sealed).decode())
    return response if len(response.reports) + _AROUND <= order.inline else Response()


def respond(order: Order, reports: list[Report], key: bytes) -> Response:
    """The response for `take_reports`. Reports that do not fit are put into their object. May raise StoreError."""
    sealed = seal_reports(order, reports, key)
    response = response_of(order, sealed)
    if not response.reports:
        Store.open(order.task.job.store).put(order.reports, sealed)
    return response


def take_reports(order: Order, response: Response, key: bytes) -> list[Report]:
    """The reports from the response, or from their object, which is then removed. Raises CorruptError, MissingError,
    StoreError."""
    if response.reports:
        return open_reports(order.reports, response.sealed, key)
    store = Store.open(order.task.job.store)
    found = open_reports(order.reports, store.get(order.reports), key)
    store.delete([order.reports])
    return found


def decode_response(data: bytes) -> Response:
    """Decode a response. Invalid data counts as an empty response, so that the reports are looked up in the store."""
    try:
        return msgspec.json.decode(data, type=known(Response))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Response()


_AROUND = 200
"""Bytes of a response besides the reports."""
