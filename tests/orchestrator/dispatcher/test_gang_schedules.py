"""A gang over two hosts, disturbed at random: the bytes of the undisturbed one or a failure with a class, in time, and
nothing left behind.

Members of both hosts train with checkpoints. A schedule is a list of faults: members are killed or stand still, a host
stands still or is killed and replaced, packets are lost in one direction or both. Each schedule has a seed, so that
`TREADLE_TEST_GANG_SEED=17 TREADLE_TEST_GANG_SCHEDULES=1` repeats one.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import namespaces
import pytest
from eventually import eventually
from orchestrator.broken_runs import values
from orchestrator.dispatcher.test_gangs import gang
from orchestrator.dispatcher.test_gangs_over_hosts import Drivers, linked_drivers
from orchestrator.record_histories import spec

from treadle.client.testing import EngineFailure
from treadle.client.testing.strategies import Case
from treadle.dsl.model import Spec
from treadle.dsl.reference import run_reference
from treadle.primitives.errors import FailureClass

FIRST = int(os.environ.get("TREADLE_TEST_GANG_SEED", "0"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("TREADLE_TEST_GANG_SCHEDULES", "500")))
MEMBERS, STEPS, PATIENCE = 4, 40, 120.0
KINDS = ("kill", "stop", "stop", "cut", "cut one way", "stop host", "kill host")


class Fault(NamedTuple):
    """`seconds` after the one before. It lasts for `lasts` seconds, and concerns this member if it concerns one."""

    seconds: float
    kind: str
    lasts: float
    member: int


def schedule(seed: int) -> list[Fault]:
    chance = random.Random(seed)
    return [
        Fault(chance.uniform(0, 0.5), chance.choice(KINDS), chance.choice([0.05, 0.3, 1, 4]), chance.randrange(MEMBERS))
        for _ in range(chance.randint(1, 4))
    ]


class Disturbed:
    """Two hosts, and the gang's run on them."""

    def __init__(self, made: Drivers, left: namespaces.Host, right: namespaces.Host) -> None:
        self.made, self.hosts = made, (left, right)
        self.other = "right"
        """The second host, which has its own memory."""

    def run(self, seed: int, notes: Path) -> Any:
        """The result under the faults of a schedule."""
        notes.mkdir()
        run, document = f"schedule-{seed}", training(notes)
        assert self.made.harness.submit(self.made.engine, Case(document), notes, run) is None
        disturbing = threading.Thread(target=self.disturb, args=(schedule(seed), notes))
        disturbing.start()
        try:
            return self.made.harness.wait(self.made.engine.run(run), PATIENCE)
        except EngineFailure as failure:
            return failure
        finally:
            disturbing.join()

    def disturb(self, faults: list[Fault], notes: Path) -> None:
        eventually(lambda: len(list(notes.glob("*.pid"))) == MEMBERS)
        with contextlib.ExitStack() as lasting:
            for fault in faults:
                time.sleep(fault.seconds)
                self.begin(fault, notes, lasting)

    def begin(self, fault: Fault, notes: Path, lasting: contextlib.ExitStack) -> None:
        match fault.kind:
            case "kill":
                send(member(notes, fault.member), signal.SIGKILL)
            case "stop":
                lasting.enter_context(for_a_while(fault.lasts, standing_still(member(notes, fault.member))))
            case "stop host":
                lasting.enter_context(for_a_while(fault.lasts, standing_still(self.made.processes[-1].pid)))
            case "kill host":
                self.replace()
            case _:
                cut = namespaces.cut(*self.hosts, both_ways=fault.kind == "cut")
                lasting.enter_context(for_a_while(fault.lasts, cut))

    def replace(self) -> None:
        """Kill the second host. Another one takes its place."""
        self.made.processes[-1].kill()
        self.made.lenders.pop()
        self.other = f"right-{len(self.made.processes)}"
        self.made.host(self.other, f"tls://{self.hosts[1].address}:0", self.hosts[1].popen)


@contextlib.contextmanager
def for_a_while(seconds: float, fault: contextlib.AbstractContextManager[None]) -> Iterator[None]:
    """The fault lasts for so many seconds, beside what else happens."""
    end, begun = threading.Event(), threading.Event()

    def hold() -> None:
        with fault:
            begun.set()
            end.wait(seconds)

    holding = threading.Thread(target=hold)
    holding.start()
    begun.wait()
    try:
        yield
    finally:
        holding.join()


@contextlib.contextmanager
def standing_still(process: int) -> Iterator[None]:
    send(process, signal.SIGSTOP)
    try:
        yield
    finally:
        send(process, signal.SIGCONT)


def send(process: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)


def member(notes: Path, number: int) -> int:
    """The process that runs a member now, or ran it last."""
    return int((notes / f"{number}.pid").read_text())


def training(notes: Path) -> dict[str, Any]:
    given = {"range": MEMBERS, "partitions": MEMBERS}
    more = {"with": {"folder": str(notes), "steps": STEPS}, "retry": {"maximumAttempts": 20, "initialInterval": "1ms"}}
    return spec(fit=gang("trains_together", given, flat=True, **{**more, "gang": MEMBERS}))


@pytest.fixture
def disturbed(tmp_path: Path) -> Iterator[Disturbed]:
    with linked_drivers(tmp_path, MEMBERS // 2) as (made, left, right):
        yield Disturbed(made, left, right)


@pytest.mark.chaos
@pytest.mark.timeout(2 * 3600)
def test_disturbed_gang_has_the_right_result_or_a_class(disturbed: Disturbed, tmp_path: Path) -> None:
    (tmp_path / "alone").mkdir()
    meant = run_reference(Spec.model_validate(training(tmp_path / "alone")))
    expected = [partition.value for partition in meant.datasets["fit"]]
    ends: Counter[str] = Counter()
    for seed in SEEDS:
        began = time.monotonic()
        found = disturbed.run(seed, tmp_path / f"notes-{seed}")
        ends[found.problem.failure if isinstance(found, EngineFailure) else "right"] += 1
        print(f"{seed}: {time.monotonic() - began:.1f} s, {dict(ends)}", flush=True)  # noqa: T201
        if isinstance(found, EngineFailure):
            assert found.problem.failure not in ("", FailureClass.INTERNAL), (seed, found)
        else:
            assert values(found, "fit") == expected, seed
        left = disturbed.made.left_behind(
            f"schedule-{seed}", ("here", disturbed.other)
        )  # a dead host's memory is its own
        assert left == [], seed
    assert ends["right"] >= 0.9 * len(SEEDS)
