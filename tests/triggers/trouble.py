"""Faults and events of triggers, as data drawn from a seed, so that a failure can be repeated."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct

KINDS = "abc"
"""Types of events. `x` is a record that is not an event."""
PARTITIONS = 2

Fault = Literal[
    "none",
    "kill a service",
    "kill a service between start and commit",
    "kill a service after a commit",
    "a second service",
    "a service leaves",
    "stall a service",
    "Temporal hangs",
    "Temporal is killed",
    "Temporal is away for a minute",
    "the broker restarts",
    "Kafka forgets the offsets",
    "records expire",
]
FAULTS: dict[Fault, int] = {
    "none": 1,
    "kill a service": 3,
    "kill a service between start and commit": 4,
    "kill a service after a commit": 2,
    "a second service": 3,
    "a service leaves": 2,
    "stall a service": 2,
    "Temporal hangs": 2,
    "Temporal is killed": 1,
    "Temporal is away for a minute": 0,
    "the broker restarts": 1,
    "Kafka forgets the offsets": 1,
    "records expire": 2,
}
"""Weights of the draw. The minute is used only on request."""


class Sent(Struct, frozen=True):
    """A produced record."""

    partition: int
    kind: str
    number: int
    """Unique within the schedule, except for a record that the producer sends again."""


class Step(Struct, frozen=True):
    """The events of one workflow in one round."""

    sent: tuple[Sent, ...]
    then: Literal["nothing", "redeploy", "recreate"] = "nothing"
    kinds: str = ""
    """The types that the redeployed filter accepts."""
    settled: bool = True
    """True: the deployment records where the version begins. Otherwise the service must."""


class Schedule(Struct, frozen=True):
    """One workflow with one trigger on one topic, and its steps."""

    seed: int
    kinds: str
    settings: dict[str, Any]
    """Settings of the trigger: `batch`, `maxActive`, `dedupe`, `events`."""
    steps: tuple[Step, ...]

    @property
    def dedupes(self) -> bool:
        return bool(self.settings.get("dedupe") == "event")


class Wave(Struct, frozen=True):
    """Schedules that share the faults of servers and services, with one fault for each round."""

    seed: int
    schedules: tuple[Schedule, ...]
    faults: tuple[Fault, ...]
    waits: tuple[float, ...]
    """Seconds to wait after each fault."""


def draw_faults(seed: int, rounds: int) -> list[Fault]:
    return random.Random(f"faults {seed}").choices(list(FAULTS), list(FAULTS.values()), k=rounds)


def draw_wave(seed: int, schedules: int, faults: Sequence[Fault]) -> Wave:
    """One round for each fault."""
    chance = random.Random(f"wave {seed}")
    drawn = tuple(draw_schedule(seed * 1000 + index, len(faults)) for index in range(schedules))
    return Wave(seed, drawn, tuple(faults), tuple(chance.uniform(0, 1.5) for _ in faults))


def draw_schedule(seed: int, rounds: int) -> Schedule:
    chance = random.Random(f"schedule {seed}")
    settings: dict[str, Any] = {"events": chance.choice(["auto", "auto", "range", "capture"])}
    match chance.randrange(3):
        case 0:
            settings["batch"] = {"maxEvents": chance.randint(2, 6), "maxWait": "300ms"}
        case 1:
            settings["dedupe"] = "event"
    if active := chance.choice([0, 0, 1, 1, 3]):
        settings["maxActive"] = active
    kinds = _some(chance)
    steps: list[Step] = []
    numbers = 0
    for _ in range(rounds):
        sent: list[Sent] = []
        for _ in range(chance.randrange(7)):
            kind = "x" if chance.random() < 0.05 else chance.choice(KINDS)
            sent.append(Sent(chance.randrange(PARTITIONS), kind, numbers))
            numbers += 1
        before = [one for step in steps for one in step.sent if one.kind != "x"]
        if before and chance.random() < 0.3:
            again = chance.choice(before)
            sent.append(Sent(chance.randrange(PARTITIONS), again.kind, again.number))
        steps.append(_then(chance, tuple(sent)))
    return Schedule(seed, kinds, settings, tuple(steps))


def _then(chance: random.Random, sent: tuple[Sent, ...]) -> Step:
    match chance.randrange(8):
        case 0 | 1:
            return Step(sent, "redeploy", _some(chance), chance.random() < 0.7)
        case 2:
            return Step(sent, "recreate")
    return Step(sent)


def _some(chance: random.Random) -> str:
    return "".join(sorted(chance.sample(KINDS, chance.randint(1, len(KINDS)))))
