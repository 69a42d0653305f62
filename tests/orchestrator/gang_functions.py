"""User functions of gangs."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from treadle.executors import Context
from treadle.primitives.channels import Barrier, BroadcastChannel, MemberLost, ReduceChannel, ShuffleChannel


def everything(records: Iterator[int]) -> list[Any]:
    """All four collectives, with the results of each."""
    return collectives(list(records))


def collectives(mine: list[int]) -> list[Any]:
    first = 0 in mine
    barrier = Barrier("begin")
    barrier.wait()
    with BroadcastChannel("factor") as channel:
        if first:
            channel.send(10)
        factor = 10 if first else channel.receive()
    with ReduceChannel("sum", lambda a, b: a + b) as channel:
        total = channel.reduce(factor * sum(mine))
    with BroadcastChannel("total") as channel:
        if total is not None:
            channel.send(total)
        else:
            total = channel.receive()
    with ShuffleChannel("odd", "both") as channel:
        pieces = channel.send_receive(mine, lambda number: number)
    barrier.wait()
    return [factor, total, sorted(number for piece in pieces for number in piece)]


def counted(records: Iterator[int], *, folder: str, context: Context) -> int:
    """Records its run, and sums over the gang."""
    _note(folder, context)
    with ReduceChannel("sum", lambda a, b: a + b) as channel:
        total = channel.reduce(sum(records))
    with BroadcastChannel("total") as channel:
        if total is None:
            return int(channel.receive())
        channel.send(total)
    return int(total)


def waits_for_word(records: Iterator[int], *, folder: str, context: Context) -> int:
    """Notes its start, and ends like `counted` once `folder` has a file `go`."""
    Path(folder, f"{context.stage}-{context.partition}.{context.attempt}").touch()
    while not Path(folder, "go").exists():
        time.sleep(0.02)
    return counted(records, folder=folder, context=context)


def holds(records: Iterator[int], *, folder: str, text: str, context: Context) -> int:
    """Sends a text to the other member, and ends once `folder` has a file `go`."""
    with BroadcastChannel("texts") as channel:
        if context.partition == 0:
            channel.send(text)
        else:
            assert channel.receive() == text
    Barrier("met").wait()
    return waits_for_word(records, folder=folder, context=context)


def sums_arrays(records: Iterator[int], *, size: int, rounds: int) -> float:
    """Reduces an array of `size` floats in each round. Returns the sum of one element at the root."""
    mine, total = np.full(size, float(sum(records) + 1)), 0.0
    with ReduceChannel("arrays", np.add) as channel:
        for _ in range(rounds):
            found = channel.reduce(mine)
            total += 0.0 if found is None else float(found[-1])
    return total


def gets_arrays(records: Iterator[int], *, size: int, rounds: int, all_reduce: bool, context: Context) -> float:
    """In each round all members get an array of `size` floats: from the first member, or the sum of all. Returns
    the sum of one element of each.
    """
    mine, total = np.full(size, float(sum(records) + 1)), 0.0
    with BroadcastChannel("arrays") as cast, ReduceChannel("arrays", np.add) as sums:
        for _ in range(rounds):
            if all_reduce:
                found = sums.all_reduce(mine)
            elif context.partition == 0:
                cast.send(mine)
                found = mine
            else:
                found = cast.receive()
            total += float(found[-1])
        Barrier("end").wait()  # a member that ends takes the pulled values along: a later one would pull them again
    return total


def dies_first(records: Iterator[int], *, folder: str, context: Context) -> int:
    """The second member dies in the first attempt, once the first member has begun."""
    if context.attempt == 1 and context.partition == 1:
        while not Path(folder, f"{context.stage}-0.1").exists():
            time.sleep(0.01)
        _note(folder, context)
        os._exit(3)
    return counted(records, folder=folder, context=context)


def names_its_process(records: Iterator[int], *, folder: str, busy: bool, context: Context) -> int:
    """Writes its process id to a file. The second member dies in the first attempt, once the first one has begun. That
    one waits at a barrier, or computes (`busy`).
    """
    Path(folder, f"{context.partition}.{context.attempt}").write_text(str(os.getpid()))
    if context.attempt == 1 and context.partition == 1:
        while not Path(folder, "0.1").exists():
            time.sleep(0.01)
        os._exit(3)
    if context.attempt == 1 and busy:
        time.sleep(3600)
    Barrier("all").wait()
    return sum(records)


def dies_at(records: Iterator[int], *, step: int, context: Context) -> list[Any]:
    """The second member is killed at a step of the first attempt: before, within and after each collective."""
    mine, steps = list(records), itertools.count(1)

    def tick() -> None:
        if next(steps) == step and context.attempt == 1 and context.partition == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    def add(a: int, b: int) -> int:
        tick()
        return a + b

    tick()
    Barrier("begin").wait()
    tick()
    with ReduceChannel("sum", add) as up, BroadcastChannel("sum") as down:
        tick()
        total = up.reduce(sum(mine))
        tick()
        if total is None:
            total = down.receive()
        else:
            down.send(total)
        tick()
    with ShuffleChannel("odd", "both") as channel:
        tick()
        channel.send(mine, lambda number: number)
        tick()
        pieces = channel.receive()
        tick()
    tick()
    Barrier("end").wait()
    return [total, sorted(number for piece in pieces for number in piece)]


def trains(
    records: Iterator[int],
    *,
    folder: str,
    steps: int,
    size: int = 1,
    die: dict[str, list[int]] | None = None,
    store: str = "",
    context: Context,
) -> list[float]:
    """Adds up a reduce in each step, and saves [step, sum, ...] in a checkpoint. Notes each step that it does in
    `folder`.

    `die`: attempt -> [partition, step]: the member is killed in that step of that attempt, before its checkpoint. With
    `store`, the folder of a store, the other member has put its state of that step there before.
    """
    mine, gang = float(sum(records)), context.gang
    state = gang.restored
    state = np.zeros(1 + size) if state is None else state
    with ReduceChannel("sum", np.add) as channel:
        for step in range(int(state[0]) + 1, steps + 1):
            with Path(folder, f"{context.partition}.steps").open("a") as file:
                file.write(f"{context.attempt}:{step}\n")
            state[1:] += channel.all_reduce(np.full(1, mine * step))[0]
            state[0] = step
            if (die or {}).get(str(context.attempt)) == [context.partition, step]:
                other = f"runs/{context.run}/blocks/checkpoints/sum/{step}.{1 - context.partition}.*"
                while store and not any(Path(store).glob(other)):
                    time.sleep(0.01)
                os.kill(os.getpid(), signal.SIGKILL)
            assert gang.checkpoint(state) == step
    return [float(one) for one in state[:2]]


def trains_together(records: Iterator[int], *, folder: str, steps: int, context: Context) -> list[float]:
    """A broadcast, an all-reduce and a checkpoint in each step, and a shuffle at the end. Names its process in
    `folder`."""
    Path(folder, f"{context.partition}.pid").write_text(str(os.getpid()))
    mine, gang = float(sum(records) + 1), context.gang
    state = np.zeros(50_000) if gang.restored is None else gang.restored.copy()
    with ReduceChannel("sum", np.add) as sums, BroadcastChannel("rate") as rates:
        for step in range(int(state[0]) + 1, steps + 1):
            if context.partition == 0:
                rates.send(1.0 / step)
            rate = 1.0 / step if context.partition == 0 else rates.receive()
            state[1:] += rate * sums.all_reduce(np.full(len(state) - 1, mine + step))
            state[0] = step
            time.sleep(0.005)
            gang.checkpoint(state)
    with ShuffleChannel("next", "both") as channel:
        pieces = channel.send_receive([gang.rank], lambda rank: rank + 1)
    return [float(state[0]), float(state[-1]), *(float(rank) for piece in pieces for rank in piece)]


def disagrees(records: Iterator[int], *, times: list[int], context: Context) -> int:
    """Each member saves as many checkpoints as `times` has for its partition."""
    for _ in range(times[context.partition]):
        context.gang.checkpoint(list(records))
    return context.gang.rank


def raises_first(records: Iterator[int], *, folder: str, context: Context) -> int:
    if context.attempt == 1 and context.partition == 1:
        _note(folder, context)
        raise ValueError("not yet")
    return counted(records, folder=folder, context=context)


def raises_always(records: Iterator[int], *, folder: str, context: Context) -> int:
    if context.partition == 1:
        _note(folder, context)
        raise ValueError("never")
    return counted(records, folder=folder, context=context)


def follows(records: Iterator[int], *, cause: bool, context: Context) -> int:
    """In the first attempt one member fails because of another. The other hangs, or reports its failure later."""
    if context.attempt == 1 and context.partition == 0:
        raise MemberLost("reduce channel sum", ["member 1"])
    if context.attempt == 1:
        time.sleep(0.3 if cause else 3600)
        raise ValueError("the cause")
    return sum(records)


def never_ends(records: Iterator[int], *, folder: str, context: Context) -> int:
    """The second member of the first attempt hangs."""
    if context.attempt == 1 and context.partition == 1:
        _note(folder, context)
        time.sleep(3600)
    if context.attempt == 1:
        Barrier("nobody comes").wait()
    return sum(records)


def added(record: int) -> int:
    """One more than the gang's sum. Each member has one record."""
    with ReduceChannel("sum", lambda a, b: a + b) as channel:
        total = channel.reduce(record)
    with BroadcastChannel("total") as channel:
        if total is None:
            total = channel.receive()
        else:
            channel.send(total)
    return int(total) + 1


def _note(folder: str, context: Context) -> None:
    with (Path(folder) / f"{context.stage}-{context.partition}.{context.attempt}").open("a") as file:
        file.write("x")
