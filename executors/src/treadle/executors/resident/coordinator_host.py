"""The driver's coordinator of members: one task at a time for each, and its result or its loss. The members of gangs
that run in resident functions meet there too."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from treadle.primitives import sealing
from treadle.primitives.channels.gang import Gang, MeetingPlace
from treadle.primitives.errors import UsageError
from treadle.primitives.wire import is_loopback, parse

if TYPE_CHECKING:
    from treadle.primitives.coordinator import Deliver, Returned
    from treadle.primitives.coordinator.server import CoordinatorServer

    from .driver_peer import Visitor


class Meeting(Struct, frozen=True):
    """The address at which members and their driver connect, and the options of members."""

    coordinator: str
    """The address for functions: `tls://host:port`, or `tcp://` on loopback. Port 0 selects a free port."""
    listen: str = ""
    """The address on which the driver listens; empty: the same."""
    direct: bool = True
    """Members serve their blocks to one another."""
    idle: float = 60.0
    """Seconds that an idle member is kept."""
    inbound: bool = True
    """Members can be dialled. Otherwise two members dial each other at the same time, or pass blocks through the
    store."""


class MemberGone(Exception):
    """The member will not finish the task: it left, gave the task up, or was lost."""

    def __init__(self, begun: bool) -> None:
        super().__init__(begun)
        self.begun = begun
        """The task may have started."""


class Hub:
    """The coordinator of one executor, in one event loop. `session` is the run that members join; `key` authenticates
    both sides."""

    def __init__(self, meeting: Meeting, deployment_key: bytes, folder: Path) -> None:
        """`folder` stores the TLS identities. Raises UsageError for invalid addresses."""
        for address in (meeting.coordinator, meeting.listen or meeting.coordinator):
            parse(address)
        if parse(meeting.coordinator).port == 0 and meeting.listen:
            raise UsageError(f"{meeting.coordinator} is no address that functions reach", "Name its port.")
        self.meeting, self._folder = meeting, folder
        self.session = f"members-{secrets.token_hex(8)}"
        self.key = sealing.run_key(deployment_key, self.session)
        self._run_key = partial(sealing.run_key, deployment_key)
        self._visitor: Visitor | None = None
        self._server: CoordinatorServer | None = None
        self._starting = asyncio.Lock()
        self._asked: dict[str, asyncio.Future[bytes]] = {}
        self._numbers = itertools.count()
        self._gangs: Counter[str] = Counter()
        """Run -> number of its gangs under way, whose members may connect."""
        self._gathering: dict[str, asyncio.Barrier] = {}
        """Gangs whose functions are not all ready."""

    @property
    def address(self) -> str:
        """The address for functions."""
        assert self._server is not None
        return self._server.address if parse(self.meeting.coordinator).port == 0 else self.meeting.coordinator

    def identity(self) -> str:
        """The members' identity for one another: PEM of a key and its certificate; empty if no encryption is needed."""
        return _pem(self._folder / "members") if self.meeting.direct and self._encrypts else ""

    @property
    def _encrypts(self) -> bool:
        target = parse(self.meeting.coordinator)
        return target.scheme != "tcp" or not is_loopback(target.host)

    async def start(self) -> None:
        """Listen. Idempotent. Raises UsageError, WireError."""
        async with self._starting:
            if self._server is not None:
                return
            from treadle.primitives.coordinator.server import CoordinatorServer
            from treadle.primitives.wire import tls_identity

            listen = self.meeting.listen or self.meeting.coordinator
            tls = tls_identity(self._folder / "coordinator") if parse(listen).scheme == "tls" else None
            server = CoordinatorServer(
                self._key_of, listen, tls=tls, on_result=self._delivered, on_returned=self._returned
            )
            await server.start()
            self._server = server
            if self.meeting.direct and not self.meeting.inbound:
                from .driver_peer import Visitor

                about = (self.session, self.key, self._run_key, self.present)
                self._visitor = Visitor(server.address, *about, self._folder / "visitor")

    async def stop(self) -> None:
        """Close the connections to all members. Idempotent."""
        visitor, self._visitor = self._visitor, None
        if visitor is not None:
            await visitor.stop()
        server, self._server = self._server, None
        if server is not None:
            await server.stop()
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(MemberGone(begun=True))

    async def ask(self, member: str, body: bytes) -> bytes:
        """Offer a request to a member, which receives it once it is connected. Raises MemberGone. Cancelling stops the
        work on it."""
        assert self._server is not None
        task = f"task-{next(self._numbers)}"
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._asked[task] = answer
        self._server.offer(self.session, task, body, member)
        try:
            return await answer
        except asyncio.CancelledError:
            if self._server is not None:
                self._server.withdraw(self.session, task)
            raise
        finally:
            del self._asked[task]

    def _key_of(self, run: str) -> bytes | None:
        if run == self.session:
            return self.key
        return self._run_key(run) if self._gangs[run] else None

    # -- gangs

    @contextlib.asynccontextmanager
    async def gang_place(self, run: str) -> AsyncIterator[MeetingPlace]:
        """See `GangExecutor`. The identity is used for these gangs only, because user code could read it."""
        await self.start()
        assert self._server is not None
        with tempfile.TemporaryDirectory() as folder:
            identity = await asyncio.to_thread(_pem, Path(folder)) if self._encrypts else ""
        self._gangs[run] += 1
        try:
            yield MeetingPlace(self._server, self.address, inbound=self.meeting.inbound, identity=identity)
        finally:
            self._gangs[run] -= 1

    async def gathered(self, gang: Gang) -> None:
        """A function is ready for one member of the gang. Return once there is one for each member."""
        gathering = self._gathering.setdefault(gang.name, asyncio.Barrier(gang.size))
        try:
            await gathering.wait()
        finally:
            if not gathering.n_waiting:
                self._gathering.pop(gang.name, None)

    def present(self, member: str) -> bool:
        """Whether the member has connected, and has neither left nor been lost."""
        return self._server is not None and self._server.present(self.session, member)

    def know(self, run: str, store: str) -> None:
        """Let this driver also read the blocks that members hold of the run."""
        if self._visitor is not None:
            self._visitor.know(run, store)

    def dismiss(self, member: str) -> None:
        """Tell the member that it is not needed any more."""
        if self._server is not None:
            self._server.dismiss(self.session, member)

    def _delivered(self, _: str, result: Deliver) -> None:
        with contextlib.suppress(KeyError, asyncio.InvalidStateError):
            self._asked[result.task].set_result(result.result)

    def _returned(self, _: str, returned: Returned) -> None:
        with contextlib.suppress(KeyError, asyncio.InvalidStateError):
            self._asked[returned.task].set_exception(MemberGone(returned.lost))


def _pem(folder: Path) -> str:
    from treadle.primitives.wire import tls_identity

    return tls_identity(folder).path.read_text("ascii")
