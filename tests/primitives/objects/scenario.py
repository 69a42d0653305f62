"""Calls of clients on a few objects, models of these objects, and schedules of faults; all from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Literal

from primitives.objects.linearizability import linearizable
from primitives.objects.simulation import STORE, World

from treadle.primitives.objects import messages as m
from treadle.primitives.objects.catalog import Number, Queue, Reference
from treadle.primitives.objects.definitions import shared
from treadle.primitives.objects.shard import Shard

Call = tuple[str, str, tuple[Any, ...], float | None]
OBJECTS: dict[str, tuple[Any, ...]] = {
    "number": (Number, (), {}),
    "cell": (Reference, (), {}),
    "queue": (Queue, (2,), {}),
}


def number_step(state: int, method: str, arguments: tuple[Any, ...]) -> tuple[Any, int]:
    if method == "add":
        return state + arguments[0], state + arguments[0]
    return state, state


def cell_step(state: Any, method: str, arguments: tuple[Any, ...]) -> tuple[Any, Any]:
    match method:
        case "get":
            return state, state
        case "set":
            return None, arguments[0]
        case _:
            expected, value = arguments
            return state == expected, value if state == expected else state


def queue_step(state: tuple[Any, ...], method: str, arguments: tuple[Any, ...]) -> tuple[Any, Any] | None:
    if method == "put":
        return None if len(state) >= 2 else (None, (*state, *arguments))
    return (state[0], state[1:]) if state else None


MODELS: dict[str, Any] = {"number": (0, number_step), "cell": (None, cell_step), "queue": ((), queue_step)}


@shared
class Unequal(Reference):
    """Each replica draws its own number."""

    def set(self, value: Any) -> None:
        super().set((value, random.random()))


def caller(calls: int, number: int, *, unequal: bool = False) -> Callable[[random.Random], Call | None]:
    """Make the objects, then call them at random."""
    left = iter(range(calls + len(OBJECTS)))

    def choose(random: random.Random) -> Call | None:
        turn = next(left, None)
        if turn is None:
            return None
        if turn < len(OBJECTS):
            name = list(OBJECTS)[turn]
            made = (Unequal, (), {}) if unequal and name == "cell" else OBJECTS[name]
            return name, m.CREATE, made, None
        value = f"{number}.{turn}"
        if number == 0 and random.random() < 0.9:  # the loyal client: a primary that was removed may answer it
            return random.choice(("number", "cell")), "get", (), None
        return random.choice(
            [
                ("number", "add", (1,), None),
                ("number", "add", (number + 2,), None),
                ("number", "get", (), None),
                ("cell", "get", (), None),
                ("cell", "set", (value,), None),
                ("cell", "compare_and_set", (None, value), None),
                ("queue", "put", (value,), 2.0),
                ("queue", "get", (), 2.0),
            ]
        )

    return choose


def disturb(world: World, durability: Literal["memory", "store"]) -> None:
    """One fault, at random, of which the shard must lose nothing."""
    draw = world.random
    names = [name for name, keeper in world.keepers.items() if keeper.alive]
    match draw.choice(("kill", "pause", "cut", "cut", "isolate", "none")):
        case "kill" if durability == "store":
            victim = draw.choice(names)
            world.kill(victim)
            world.start_keeper()
            if victim == world.views.newest().primary:
                heir = draw.choice([name for name, one in world.keepers.items() if one.alive])
                world.after(draw.uniform(0, 1), lambda: world.take_over(heir))
        case "pause" if durability == "store" and draw.random() < 0.5:  # the supervisor thinks that it is dead
            primary = world.views.newest().primary
            world.pause(primary, draw.uniform(0.2, 3))
            heir = draw.choice([name for name in names if name != primary])
            world.after(draw.uniform(0, 1), lambda: world.take_over(heir))
        case "kill":
            synced = world.synced()
            if len(synced) > 1:
                victim = draw.choice(synced)
                world.kill(victim)
                if draw.random() < 0.5:
                    world.rumour(victim)
                world.after(draw.uniform(0, 2), world.start_keeper)
        case "pause":
            world.pause(draw.choice(names), draw.uniform(0.2, 3))
        case "cut":
            one, other = draw.choice(names), draw.choice([*names, "c0", "c1"])
            world.cut(one, other, draw.uniform(0.2, 3))
            if draw.random() < 0.5:
                world.cut(other, one, draw.uniform(0.2, 3))
        case "isolate":
            one, seconds = draw.choice([draw.choice(names), world.views.newest().primary]), draw.uniform(0.5, 5)
            for other in (*names, STORE):
                world.cut(one, other, seconds)
                world.cut(other, one, seconds)
            if draw.random() < 0.5:
                world.rumour(one)


def play(
    seed: int,
    *,
    shard: type[Shard] = Shard,
    durability: Literal["memory", "store"] = "memory",
    clients: int = 4,
    calls: int = 12,
    seconds: float = 8.0,
    unequal: bool = False,
) -> World:
    """Play a schedule of faults, then wait in calm until all clients are done.

    `unequal`: the class of an object is not deterministic.
    """
    world = World(seed, keepers=3, copies=2 + seed % 2, durability=durability, shard=shard)
    for number in range(clients):
        world.client(caller(calls if number else 4 * calls, number, unequal=unequal))
    end = world.now + seconds
    while world.now < end:
        world.run(world.now + world.random.expovariate(1.5))
        disturb(world, durability)
    calm(world, durability)
    return world


def calm(world: World, durability: str) -> None:
    world.calm, world.cuts = True, {}
    if durability == "store":
        world.run(world.now + 4)
        primary = world.keepers[world.views.newest().primary]
        if not primary.alive:
            world.take_over(next(name for name, one in world.keepers.items() if one.alive))
    deadline = world.now + 120
    while world.now < deadline and not all(client.done for client in world.clients):
        world.run(world.now + 1)


def verdict(world: World) -> str | None:
    """The fault of the world's history, or None."""
    if not all(client.done for client in world.clients):
        waiting = [client.message for client in world.clients if not client.done]
        return f"calls have no answer: {waiting}"
    if world.errors:
        return f"calls failed: {world.errors[:3]}"
    name = linearizable(world.history, MODELS)
    return f"the calls of {name} have no order" if name else None
