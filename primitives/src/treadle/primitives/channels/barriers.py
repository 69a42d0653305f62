"""The barriers that a member waits at: at the coordinator, or at a board where all members share the memory
of a host.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from ..blocks import Blocks
from ..coordinator.messages import Broken, Counted, FromMember, Refused, Released, Wait
from ..errors import UsageError
from .errors import MemberLost, rank_of
from .gang import Gang, folder_of
from .io.shared_barrier import Board, Boards

if TYPE_CHECKING:
    from .io.socket_loop import SocketLoop


class Arrival(Struct):
    """This member's state at one barrier."""

    barrier: str
    parties: int
    board: Board | None
    """The meeting point of the parties, in place of the coordinator, which then reports only a broken barrier."""
    generation: int = 0
    waiting: bool = False
    """The coordinator has received Wait and has not answered."""
    answer: Released | Broken | Refused | None = None

    @property
    def wait(self) -> Wait:
        if self.board is not None:
            return Wait(self.barrier, self.parties, 0, elsewhere=True)
        return Wait(self.barrier, self.parties, self.generation)

    def take(self) -> Released | Broken | Refused | None:
        """Return the result of the wait, the same for all parties, or None while it is open. After a result the next
        wait may begin.
        """
        answer = self.answer if self.board is None else self._met(self.board)
        if isinstance(answer, Released):
            self.generation = answer.generation + 1
        if self.board is None and answer is not None:
            self.answer, self.waiting = None, False
        return answer

    def _met(self, board: Board) -> Released | Broken | Refused | None:
        """A lost party breaks the barrier only once it is certain that this generation will not be complete."""
        met = board.met(self.generation)
        if met:
            return Released(self.barrier, self.generation)
        if met is None:
            return self.answer if isinstance(self.answer, Refused) else None
        return self.answer or Broken(self.barrier, self.generation, (str(board.gone),))


class MemberBarriers:
    """All barriers of a member. `wait` is for users' threads; all other methods need the loop's lock."""

    def __init__(self, loop: SocketLoop, gang: Gang, blocks: Blocks, say: Callable[[FromMember], None]) -> None:
        """`say` sends a message to the coordinator."""
        self._loop, self._gang, self._blocks, self._say = loop, gang, blocks, say
        self._arrivals: dict[str, Arrival] = {}
        self._boards: Boards | None = None

    def wait(self, barrier: str, parties: int, deadline: float) -> None:
        """Arrive and wait for the other parties. Raises MemberLost, UsageError, StoreError, and Late."""
        arrival = self._loop.do(lambda: self._arrive(barrier, parties))
        answer = self._loop.wait(arrival.take, deadline)
        if isinstance(answer, Broken):
            raise MemberLost(f"barrier {barrier}", answer.lost)
        if isinstance(answer, Refused):
            raise UsageError(f"barrier {barrier}: {answer.reason}")

    def _arrive(self, barrier: str, parties: int) -> Arrival:
        arrival = self._arrivals.get(barrier)
        if arrival is None:
            arrival = self._arrivals[barrier] = Arrival(barrier, parties, self._board(barrier, parties))
        if arrival.parties != parties:
            raise UsageError(f"barrier {barrier}: this member waited for {arrival.parties} parties before")
        if arrival.board is None or not (arrival.waiting or arrival.answer):
            arrival.waiting = True
            self._say(arrival.wait)
        if arrival.board is not None and not isinstance(arrival.answer, Broken):
            arrival.board.arrive(arrival.generation)
        return arrival

    def _board(self, barrier: str, parties: int) -> Board | None:
        host = self._blocks.host
        if not self._gang.one_host or host is None or parties != self._gang.size:
            return None
        if self._boards is None:
            name = self._blocks.on_host(folder_of(self._gang.name))
            self._boards = Boards(host, name, self._gang.rank, self._gang.size)
            self._loop.register(self._boards.bell.fileno(), lambda _: None, select.EPOLLIN | select.EPOLLET)
        return self._boards.open(barrier)

    def waits(self) -> Iterator[Wait]:
        """The messages to repeat to a new coordinator, or over a new connection."""
        return (arrival.wait for arrival in self._arrivals.values() if arrival.waiting)

    def present(self, barrier: str) -> Counted | None:
        """Return how many parties have arrived, when a board counts them; otherwise None."""
        arrival = self._arrivals.get(barrier)
        if arrival is None or arrival.board is None:
            return None
        return Counted(barrier, arrival.board.present(arrival.generation), arrival.parties)

    def heard(self, message: Released | Broken | Refused) -> None:
        arrival = self._arrivals.get(message.subject if isinstance(message, Refused) else message.barrier)
        if arrival is None or not arrival.waiting:
            return
        if isinstance(message, Refused) or message.generation == arrival.wait.generation:
            arrival.answer, arrival.waiting = message, False
        if arrival.board is not None and isinstance(arrival.answer, Broken):
            arrival.board.doubt(int(rank_of(arrival.answer.lost[0])))

    def close(self) -> None:
        if self._boards is not None:
            self._loop.unregister(self._boards.bell.fileno())
            self._boards.close()
