"""The functions of members of test gangs."""

from __future__ import annotations

import operator
import socket
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from primitives.channels.gangs import halt, say

from treadle.primitives.channels import (
    Barrier,
    BroadcastChannel,
    MemberLost,
    ReduceChannel,
    ShuffleChannel,
    current_gang,
)
from treadle.primitives.channels.barriers import Arrival
from treadle.primitives.channels.io import peer_routes
from treadle.primitives.channels.io.shared_memory import Segments
from treadle.primitives.channels.member_scope import current_member
from treadle.primitives.coordinator.messages import Broken
from treadle.primitives.errors import UsageError
from treadle.primitives.stores.shared_memory import HostFolder

BIG = 50_000
"""Floats of an array that travels as a block."""


def rank() -> int:
    return current_gang().rank


def identity(value: Any) -> Any:
    return value


def broadcasts_in_turn() -> list[Any]:
    """Every member sends once, with small and large values in turn."""
    seen: list[Any] = []
    with BroadcastChannel("turns") as channel:
        for sender in range(current_gang().size):
            value = np.full(BIG, sender) if sender % 2 else {"from": sender}
            if sender == rank():
                channel.send(value)
            else:
                value = channel.receive()
            seen.append(value["from"] if isinstance(value, dict) else int(value.sum()) // BIG)
    return seen


def joins_again() -> list[Any]:
    """Every channel is left and joined again by the same objects."""
    broadcast, reduce, shuffle = BroadcastChannel("b"), ReduceChannel("r", operator.add), ShuffleChannel("s")
    seen: list[Any] = []
    for turn in range(3):
        Barrier("turn").wait()
        with broadcast, reduce, shuffle:
            if rank() == turn:
                broadcast.send(turn)
            else:
                seen.append(broadcast.receive())
            seen.append(reduce.reduce(1))
            seen.append(shuffle.send_receive([turn] * 3, lambda value: value))
        Barrier("left").wait()
    return seen


def share(rank: int, number: int) -> float:
    """A value whose sum over ranks depends on the grouping."""
    return 0.1 * (rank + 1) + 1e16 * ((rank + number) % 2)


def everywhere(root: int) -> list[Any]:
    """For four rounds: the sum at all members, and then at `root` only; every second one travels as a block."""
    seen: list[Any] = []
    with ReduceChannel("sum", operator.add, root=root) as channel:
        for number in range(4):
            value = np.full(BIG, share(rank(), number)) if number % 2 else share(rank(), number)
            for total in (channel.all_reduce(value), channel.reduce(value)):
                seen.append(None if total is None else float(total[-1] if number % 2 else total))
    return seen


def reduces_apart() -> str:
    """One member does not know that all of them get the result."""
    with ReduceChannel("sum", operator.add) as channel:
        try:
            return f"got {channel.reduce(1) if rank() == 0 else channel.all_reduce(1)}"
        except UsageError as error:
            return error.message


def reductions() -> tuple[Any, Any, list[Any]]:
    handled: list[Any] = []
    with ReduceChannel("sum", operator.add, handled.append) as channel:
        small = channel.reduce(rank() + 1)
        large = channel.reduce(np.full(BIG, rank() + 1.0))
    return small, None if large is None else float(large[0]), [type(value).__name__ for value in handled]


def repeated_sums() -> tuple[bool, list[Any]]:
    """Sums large arrays by a ufunc. Returns whether its own array is unchanged, and a number of each sum at the
    root."""
    sums: list[Any] = []
    own = np.empty(BIG)
    unchanged = True
    with ReduceChannel("sums", np.add) as channel:
        for number in range(6):
            own[:] = 1.0 + number
            result = channel.reduce(own)
            unchanged = unchanged and bool((own == 1.0 + number).all())
            sums.append(result)
    assert all(one is None or len(set(one.tolist())) == 1 for one in sums)
    return unchanged, [None if one is None else float(one[0]) for one in sums]


def shuffles() -> tuple[list[Any], list[list[int]]]:
    with ShuffleChannel("pairs") as channel:
        records = channel.send_receive([(rank(), number) for number in range(6)], operator.itemgetter(1))
        arrays = channel.send_receive(np.arange(BIG), identity)
    return records, [[int(array[0]), len(array)] for array in arrays]


def shuffles_by_role() -> Any:
    role = "producer" if rank() % 2 else "consumer"
    with ShuffleChannel("halves", role) as channel:  # type: ignore[arg-type]
        if role == "producer":
            channel.send(list(range(4)), identity)
            return None
        return channel.receive()


def barriers() -> list[float]:
    passed = []
    barrier = Barrier("epoch")
    for number in range(3):
        time.sleep(0.02 * ((rank() + number) % 3))
        arrived = time.monotonic()
        barrier.wait()
        passed.append((arrived, time.monotonic()))
    return passed  # type: ignore[return-value]


def barriers_without_a_bell() -> list[float]:
    from treadle.primitives.channels.io import shared_barrier

    shared_barrier.Bell.ring = lambda self: None  # type: ignore[method-assign]
    return barriers()


def computes_for_long() -> Any:
    """An inner member of the tree computes. Its keeper passes on the messages that others wait for."""
    with BroadcastChannel("weights", fan_out=1) as channel:
        Barrier("joined").wait()
        if rank() == 0:
            channel.send("value")
            halt("sent")
            return None
        if rank() == 1:
            halt("computing")
        value = channel.receive()
        say("received")
        return value


def only_some_join() -> None:
    if rank() == 0:
        BroadcastChannel("weights").receive(deadline=1.0)
    halt("done")


def waits_alone_at_a_barrier() -> None:
    if rank() == 0:
        Barrier("epoch").wait(deadline=1.0)
    halt("done")


def nobody_sends() -> None:
    with BroadcastChannel("weights") as channel:
        channel.receive(deadline=0.5)


def raises_while_reducing() -> None:
    def fails(left: Any, right: Any) -> Any:
        raise ValueError("these cannot be added")

    ReduceChannel("sum", fails).reduce(rank())


def survives(operation: str, phase: str, victim: int) -> Any:
    """Three rounds of a collective. The victim halts before, within or after its part of the second, to be killed."""
    outcomes: list[Any] = []
    call = _ROUNDS[operation]()
    for number in range(3):
        if number == 1 and rank() == victim:
            stop_at(phase, lambda number=number: call(number))
        try:
            outcomes.append(call(number))
        except MemberLost as error:
            outcomes.append(f"lost {len(error.lost)}")
            if operation == "barrier" or (operation == "broadcast" and victim == 0):
                break  # no member passes any more, or none sends
    return outcomes


def stop_at(phase: str, call: Any) -> None:
    if phase == "within":
        threading.Thread(target=call, daemon=True).start()
        time.sleep(0.05)
    elif phase == "after":
        threading.Thread(target=call, daemon=True).start()
        time.sleep(0.3)
    halt("here")


def _broadcast_round() -> Any:
    channel = BroadcastChannel("weights")
    channel.join()

    def call(number: int) -> Any:
        if rank() == 0:
            channel.send(np.full(BIG, number))
            return number
        return int(channel.receive()[0])

    return call


def _reduce_round() -> Any:
    channel = ReduceChannel("sum", operator.add)

    def call(number: int) -> Any:
        result = channel.reduce(np.full(BIG, 1))
        return None if result is None else int(result[0])

    return call


def _shuffle_round() -> Any:
    channel = ShuffleChannel("pairs")
    return lambda number: sorted(int(one) for piece in channel.send_receive(np.arange(8), identity) for one in piece)


def _barrier_round() -> Any:
    barrier = Barrier("epoch")
    return lambda number: barrier.wait()


_ROUNDS = {
    "broadcast": _broadcast_round,
    "reduce": _reduce_round,
    "shuffle": _shuffle_round,
    "barrier": _barrier_round,
}


def works_across_a_restart() -> Any:
    """One round of everything, a pause in which the coordinator is replaced, and another round."""
    broadcast, reduce, shuffle = _broadcast_round(), _reduce_round(), _shuffle_round()
    barrier = _barrier_round()
    first = [call(0) for call in (broadcast, reduce, shuffle, barrier)]
    halt("killed and started")
    return first, [call(1) for call in (barrier, broadcast, reduce, shuffle)]


def waits_while_the_coordinator_is_replaced() -> str:
    if rank() == 0:
        halt("late")
    Barrier("epoch").wait()
    return "passed"


def is_told_of_a_loss_after_a_restart() -> str:
    """Members that share memory, a replaced coordinator, and then a killed member."""
    barrier = Barrier("epoch")
    barrier.wait()
    uplink = current_member()._uplink  # private: the test waits for another connection
    before = uplink._link  # private: the test waits for another connection
    halt("met")
    while uplink._link in (None, before):
        time.sleep(0.01)
    halt("back")
    try:
        barrier.wait()
    except MemberLost as error:
        return f"lost {len(error.lost)}"
    return "passed"


def is_overtaken_by_a_loss(passed: int) -> str:
    """After `passed` rounds the first member waits, and the last has arrived and is killed. The other one arrives once
    the loss is known."""
    barrier = Barrier("epoch")
    for _ in range(passed):
        barrier.wait()
    if rank() == 2:
        threading.Thread(target=barrier.wait, daemon=True).start()
        # private: the moment inside a barrier has no other sign
        _until(lambda arrival: arrival.board is not None and arrival.board._counts[2] > passed)
        halt("here")
    if rank() == 1:
        halt("not there")
    teller = threading.Thread(target=_say_when_broken, daemon=True)
    if rank() == 0:
        teller.start()
    try:
        barrier.wait()
    except MemberLost as error:
        return f"lost {len(error.lost)}"
    finally:
        if rank() == 0:
            teller.join()
    return "passed"


def _say_when_broken() -> None:
    _until(lambda arrival: isinstance(arrival.answer, Broken))
    say("told")


def _until(holds: Callable[[Arrival], bool]) -> None:
    arrivals = current_member()._barriers._arrivals  # private: the moment inside a barrier has no other sign
    while not any(map(holds, list(arrivals.values()))):
        time.sleep(0.01)


def waits_with_other_parties() -> None:
    """All wait at one barrier, with different numbers of parties."""
    Barrier("epoch", current_gang().size - rank()).wait()


def dials_a_silent_peer() -> Any:
    """Member 0 announces an address that accepts and never answers. The coordinator relays its messages."""
    peer_routes._DIALLING = 0.5  # private: the test shortens a time limit
    if rank() == 0:
        from treadle.primitives.channels.member import Member

        silent = socket.create_server(("127.0.0.1", 0))
        begin = Member._begin_listening  # private: the test moves the address

        def elsewhere(self: Member, local: str) -> None:
            begin(self, local)
            self.address, self.nearby = f"tcp://127.0.0.1:{silent.getsockname()[1]}", ""

        Member._begin_listening = elsewhere  # type: ignore[method-assign]
    with BroadcastChannel("weights") as channel:
        if rank() == 1:
            channel.send("small")
            channel.send(np.arange(BIG))
            return None
        return channel.receive(), int(channel.receive()[-1])


def one_of_each() -> dict[str, int]:
    """Number of messages for one round of each collective, without joins."""
    counts: dict[str, int] = {}
    member = current_member()

    def count(name: str, call: Any) -> None:
        before = member.counts["data"]
        call()
        counts[name] = member.counts["data"] - before

    with BroadcastChannel("b") as broadcast, ReduceChannel("r", operator.add) as reduce, ShuffleChannel("s") as shuffle:
        count("broadcast", lambda: broadcast.send("v") if rank() == 0 else broadcast.receive())
        count("reduce", lambda: reduce.reduce(1))
        count("shuffle", lambda: shuffle.send_receive([1, 2], identity))
        Barrier("all").wait()
        counts["broadcast passed on"] = member.counts["data"] - sum(counts.values())
    return counts


def joins_one_channel() -> int:
    with BroadcastChannel("only") as channel:
        channel._act(lambda: True, time.monotonic() + 30, "join")  # private: the test sends a raw channel message
        count = current_member().coordinator_messages
        Barrier("counted").wait()
        return count


def leaves_things_open() -> tuple[int, int]:
    """Further descriptors and threads after the member's end, once a connection that was being made has ended too."""
    import os

    from treadle.primitives.channels import member_scope

    def now() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    before = now()
    broadcasts_in_turn()
    place = member_scope._place  # private: the test ends the member inside a task
    assert place is not None
    place.close()
    place._member = None  # private: the test ends the member inside a task
    until = time.monotonic() + 8  # a connection is given 5 s to be made
    while (after := now()) != before and time.monotonic() < until:
        time.sleep(0.01)
    return after[0] - before[0], after[1] - before[1]


def uses_nothing() -> bool:
    import sys

    from treadle.primitives.channels import member_scope

    return member_scope._place is not None and member_scope._place._member is None and "asyncio" in sys.modules


def looks_at_a_segment(host: Path, size: int, pipe: Connection) -> None:
    """A process that holds a view of the block `a` until it is killed."""
    view = Segments(HostFolder(host)).read("a", 0, size)
    pipe.send(view is not None)
    pipe.recv()
