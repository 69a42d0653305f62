"""The coordinator with up to 10,000 simulated members: the state machine alone, without sockets, and its messages
encoded.

    python bench/coordinator_scale.py [members ...]

Writes the table of docs/coordinator.md. Members join one after another while views are sent as they are due (by the
real clock), or all before the first view (`parties`). Then 30 % are lost at once, at random.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from treadle.primitives.coordinator import Coordinator, Instruction, SendToConnection, Timing, depth, parent
from treadle.primitives.coordinator.messages import Hello, Join, Seat, View

MEMBERS = (100, 1_000, 10_000)
FAN_OUTS = (2, 4, 16)
LOST = 0.3
SEED = 7
_encode = msgspec.msgpack.Encoder().encode


@dataclass
class Gang:
    """A coordinator with its messages."""

    fan_out: int
    machine: Coordinator = field(default_factory=lambda: Coordinator(timing=Timing(grace=0.0)))
    messages: int = 0
    size: int = 0
    """Bytes. Each message counts once for each of its readers."""
    epoch: int = 0
    seats: list[Seat] = field(default_factory=list)

    def do(self, instructions: list[Instruction]) -> None:
        """Encode each message once, as the server does, and apply each view once."""
        known: dict[int, int] = {}
        for instruction in instructions:
            if not isinstance(instruction, SendToConnection):
                continue
            message = instruction.message
            if id(message) not in known:
                known[id(message)] = len(_encode(message))
                if isinstance(message, View):
                    self._apply(message)
            self.messages += 1
            self.size += known[id(message)]

    def _apply(self, view: View) -> None:
        if view.epoch == self.epoch:
            return
        seats = list(self.seats) if view.since else []
        for change in view.changes:
            if change.occupant is None:
                del seats[change.seat :]
            else:
                seats[change.seat : change.seat + 1] = [change.occupant]
        self.seats, self.epoch = seats, view.epoch

    def join(self, members: Iterable[int], parties: int) -> None:
        machine, now = self.machine, time.monotonic
        for number in members:
            name = f"gang-1/{number}.a1b2c3d4"
            self.do(machine.connected(number, now()))
            self.do(machine.received(number, Hello(name, f"tcp://10.0.0.1:{number}", "0123456789abcdef"), now()))
            self.do(machine.received(number, Join("sum", parties, self.fan_out), now()))
            self.do(machine.tick(now()))
        self.quiet()

    def quiet(self) -> None:
        """Wait for the last view."""
        due = self.machine.wakes_at()
        if due is not None and due - time.monotonic() < 1:
            time.sleep(max(0.0, due - time.monotonic()))
            self.do(self.machine.tick(time.monotonic()))

    def parents(self) -> dict[str, str | None]:
        return {seat.member: self._parent(place) for place, seat in enumerate(self.seats)}

    def _parent(self, place: int) -> str | None:
        above = parent(place, self.fan_out)
        return None if above is None else self.seats[above].member


def joining(count: int, fan_out: int, parties: int) -> tuple[Gang, str]:
    """All members join. Returns a row of the table."""
    gang = Gang(fan_out)
    begin = time.perf_counter()
    gang.join(range(count), parties)
    seconds = time.perf_counter() - begin
    assert len(gang.seats) == count
    how = "together" if parties > 1 else "one by one"
    each = gang.messages / count
    row = (
        f"| {count:,} | {how} | {count / seconds:,.0f} | {each:.1f} | {gang.size / count / 1e3:,.0f} | {seconds:.2f} |"
    )
    return gang, row


def losing(gang: Gang) -> str:
    """30 % are lost at once. Returns a row of the table."""
    before = {seat.member: place for place, seat in enumerate(gang.seats)}
    parents, count = gang.parents(), len(gang.seats)
    gone = random.Random(SEED).sample(range(count), int(count * LOST))
    gang.messages = gang.size = 0
    begin = time.perf_counter()
    for number in gone:
        gang.do(gang.machine.disconnected(number, time.monotonic()))
    gang.do(gang.machine.tick(time.monotonic()))
    gang.quiet()
    seconds = time.perf_counter() - begin
    assert len(gang.seats) == count - len(gone)
    moved = sum(before[seat.member] != place for place, seat in enumerate(gang.seats))
    others = sum(parents[name] != above for name, above in gang.parents().items())
    deep = f"{depth(count, gang.fan_out)} to {depth(len(gang.seats), gang.fan_out)}"
    share = others / len(gang.seats)
    size = gang.size / max(gang.messages, 1) / 1e3
    return (
        f"| {count:,} | {gang.fan_out} | {deep} | {len(gone):,} | {moved:,} | {others:,} ({share:.0%}) "
        f"| {gang.messages:,} | {size:,.0f} | {seconds:.3f} |"
    )


def main(counts: list[int]) -> None:
    print("| members | joining | joins/s | messages to each | kB to each | seconds |\n|--:|---|--:|--:|--:|--:|")
    rows = []
    for count in counts:
        print(joining(count, 2, 1)[1])
        for fan_out in FAN_OUTS:
            gang, row = joining(count, fan_out, count)
            if fan_out == FAN_OUTS[0]:
                print(row, flush=True)
            rows.append(losing(gang))
    print("\n| members | fan-out | depth | lost | seats moved | members with another parent ", end="")
    print("| messages | kB each | seconds |\n|--:|--:|---|--:|--:|--:|--:|--:|--:|")
    print("\n".join(rows))


if __name__ == "__main__":
    main([int(text) for text in sys.argv[1:]] or list(MEMBERS))
