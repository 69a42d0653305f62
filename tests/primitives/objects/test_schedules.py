"""Shards under faults: histories are linearizable and calls end. Without a rule of the protocol, some are not."""

from __future__ import annotations

from typing import Literal

import pytest
from primitives.objects.mutations import MUTATIONS
from primitives.objects.scenario import play, verdict

from treadle.primitives.objects.shard import Shard

DURABILITIES = pytest.mark.parametrize("durability", ["memory", "store"])


@DURABILITIES
def test_no_answered_call_is_lost_or_doubled_in_any_schedule(durability: Literal["memory", "store"]) -> None:
    for seed in range(60 if durability == "memory" else 40):
        assert verdict(play(seed, durability=durability)) is None, f"seed {seed}"


@pytest.mark.chaos
@pytest.mark.timeout(0)
@DURABILITIES
@pytest.mark.parametrize("part", range(4))
def test_no_answered_call_is_lost_or_doubled_in_a_thousand_schedules(
    durability: Literal["memory", "store"], part: int
) -> None:
    kills = 0
    for seed in range(1000 + 500 * part, 1500 + 500 * part):
        world = play(seed, durability=durability)
        assert verdict(world) is None, f"seed {seed}"
        kills += sum(not keeper.alive for keeper in world.keepers.values())
    assert kills > 250


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_schedules_find_a_shard_that_breaks_a_rule(mutation: type[Shard]) -> None:
    assert any(verdict(play(seed, shard=mutation)) for seed in range(70, 370))


def test_keepers_of_a_class_that_is_not_deterministic_are_compared() -> None:
    world = play(3, calls=60, unequal=True)
    diverged = {name for keeper in world.keepers.values() for name in keeper.shard.diverged}
    assert diverged == {"cell"}
