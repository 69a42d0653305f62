"""Makes a connection of `wire` from the coordinator's instruction that both sides dial."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..wire import Connection, NotAuthentic, WireError, accept, dialled, parse
from .attempt import NoPath, PunchAttempt
from .machine import SCHEDULE, Schedule, Traversal
from .port_reuse import Endpoint

if TYPE_CHECKING:
    from ..coordinator.messages import Dial
    from ..wire import Identity


def open_path(
    dial: Dial,
    me: str,
    source: Endpoint,
    run: str,
    key: bytes,
    deadline: float,
    *,
    tls: Identity | None = None,
    plain: bool = False,
    schedule: Schedule = SCHEDULE,
) -> Connection:
    """Connect to `dial.member`, which received the same token and dials at about the same time. Blocks.

    `source` is the local address of this member's connection to the coordinator, which must share its port: it was made
    with `wire.connect(..., source=ANY)`. NATs that can be traversed show that port to every host. Of the two members,
    the one whose name sorts first is the client of `wire`. The other one needs the identity `tls` when `dial.address`
    is `tls://`. `plain` allows `tcp://` off loopback, as `wire.parse` does.

    A pair may have one attempt at a time; attempts of different pairs are independent, on any threads. It ends by
    `deadline` (of `time.monotonic()`), and at most `schedule.total + schedule.challenge` seconds after `dial.delay`.
    Raises NoPath for every failure, and UsageError for invalid arguments.
    """
    target = parse(dial.address, plain=plain)
    _check(me, dial, target.scheme == "tls" and tls is None)
    time.sleep(max(0.0, min(dial.delay, deadline - time.monotonic())))
    machine = Traversal(me, dial.member, time.monotonic(), deadline, schedule)
    try:
        sock = PunchAttempt(machine, dial.token, source, (target.host, target.port)).run()
    except OSError as error:
        raise NoPath(f"no path to {dial.member} can be looked for: {error}", "Allow more open files.") from error
    deadline = min(deadline, time.monotonic() + schedule.challenge)
    try:
        if machine.leads:
            return dialled(sock, run, key, deadline=deadline, tls=target.scheme == "tls", name=dial.member)
        return accept(sock, {run: key}.get, deadline=deadline, tls=tls if target.scheme == "tls" else None)
    except (WireError, NotAuthentic) as error:
        raise NoPath(f"the path to {dial.member} opened, and led nowhere: {error.message}", error.hint) from error


def _check(me: str, dial: Dial, no_identity: bool) -> None:
    if me == dial.member:
        raise UsageError(f"member {me} cannot dial itself", "Two members of a run never have the same name.")
    if not dial.token:
        raise UsageError(f"the dial to {dial.member} has no token", "The coordinator makes one for each pair.")
    if no_identity and me > dial.member:
        raise UsageError(f"member {me} is the server of {dial.address} and has no TLS identity", "Pass `tls`.")
