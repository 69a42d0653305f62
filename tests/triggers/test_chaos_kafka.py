"""Exactly one run for each matching event, through deaths, hangs, departures, repeats and recreated topics.

A wave is a few schedules on one installation: a real broker, a real Temporal server, and `treadle triggers` in separate
processes. Each schedule is one workflow and one topic. Its events are drawn from its seed, and so are the faults that
all schedules of a wave share (trouble.py). The expected runs are computed from the produced records and the deployed
versions (trial.py).
"""

from __future__ import annotations

import os

import msgspec
import pytest
from triggers.installation import Installation
from triggers.trial import Trial
from triggers.trouble import Fault, Wave, draw_faults, draw_wave

FIRST = int(os.environ.get("CHAOS_FIRST", "0"))
"""Seed of the first wave. Another seed gives other schedules."""


async def met(wave: Wave, place: Installation, patience: float) -> None:
    client = await place.client()
    trial = Trial(wave, place, client)
    wrong = await trial.run(patience)
    for subject in trial.subjects:
        place.registry.undeploy(subject.name)
    assert not wrong, "\n".join([*wrong, msgspec.json.format(msgspec.json.encode(wave)).decode()])


@pytest.mark.timeout(240)
async def test_each_event_starts_one_run_through_a_few_faults(place: Installation) -> None:
    """A second service, and one killed between start and commit; a batch, a producer that repeats itself, one run at a
    time; a recreated topic, and a filter that changes."""
    faults: tuple[Fault, ...] = ("a second service", "kill a service between start and commit")
    await met(draw_wave(2249, 3, faults), place, patience=60)


@pytest.mark.chaos
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(FIRST + 1, FIRST + 21))
async def test_each_event_starts_one_run_under_every_fault(place: Installation, seed: int) -> None:
    await met(draw_wave(seed, 10, draw_faults(seed, 6)), place, patience=120)


@pytest.mark.chaos
@pytest.mark.timeout(600)
async def test_each_event_starts_one_run_when_temporal_was_away_for_a_minute(place: Installation) -> None:
    faults: tuple[Fault, ...] = ("a second service", "Temporal is away for a minute", "records expire", "none")
    await met(draw_wave(FIRST + 21, 10, faults), place, patience=120)
