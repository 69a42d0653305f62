"""Copies of a run's events reach its child runs, and the runs that users start again from it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from orchestrator.commands import Terminal
from triggers.test_payloads import batch, trigger

from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home
from treadle.orchestrator.environment.profile import load_profile
from treadle.primitives import sealing
from treadle.primitives.stores.store import Store
from treadle.triggers.kafka.payloads import Payloads

FUNCTIONS = "def number(order):\n    return order['n']\n"
HEAD = "apiVersion: treadle/v1\nname: {name}\ninputs: {{orders: {{type: dataset, required: true}}}}\nstages:\n"
READS = "  numbers: {type: map, input: inputs.orders, uses: 'orders:number'}\n"
CHILD = '  {name}: {{type: workflow, uses: ./{file}.yaml, with: {{orders: "${{{{ inputs.orders }}}}"}}}}\n'
ORDERS = {offset: b'{"n": %d}' % offset for offset in range(4, 9)}


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """One run, `caught`, with its own copy of events. Its child `inner` has a child `deep`, which reads them."""
    root = tmp_path_factory.mktemp("captured")
    work = root / "work"
    work.mkdir()
    (work / "orders.py").write_text(FUNCTIONS)
    (work / "reads.yaml").write_text(HEAD.format(name="reads") + READS)
    (work / "middle.yaml").write_text(HEAD.format(name="middle") + CHILD.format(name="deep", file="reads"))
    (work / "outer.yaml").write_text(HEAD.format(name="outer") + READS + CHILD.format(name="inner", file="middle"))
    try:
        terminal = Terminal(work, root / "home")
        given = f"orders={json.dumps(captured('caught', Home(root / 'home')))}"
        done = terminal.run("run", "outer.yaml", "-i", given, "--id", "caught")
        assert done.code == 0, done.err
        yield terminal
    finally:
        embedded.down(Home(root / "home"))


def captured(run: str, home: Home) -> Any:
    """The value of an input for these orders, after their copy is made."""
    kafka = trigger(events="capture")
    store, key = Store.open(load_profile(home).store_url(home)), sealing.load_or_create_key(home.key)
    return Payloads(store, key, lambda topic: None).value(batch(ORDERS, kafka, run=run), kafka)


def numbers(terminal: Terminal, run: str) -> list[int]:
    done = terminal.run("result", run, "--stage", "numbers")
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def test_child_of_a_child_reads_the_copy_made_for_the_first_run(terminal: Terminal) -> None:
    assert numbers(terminal, "caught") == numbers(terminal, "caught/inner/deep") == sorted(ORDERS)


def test_a_run_that_is_started_again_reads_the_same_events(terminal: Terminal) -> None:
    done = terminal.run("rerun", "caught", "--id", "again", "--watch")
    assert done.code == 0, done.err
    assert numbers(terminal, "again") == numbers(terminal, "again/inner/deep") == sorted(ORDERS)


def test_a_child_that_is_started_again_alone_reads_them_too(terminal: Terminal) -> None:
    done = terminal.run("rerun", "caught/inner/deep", "--id", "alone", "--watch")
    assert done.code == 0, done.err
    assert numbers(terminal, "alone") == sorted(ORDERS)
