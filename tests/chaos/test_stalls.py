"""A driver that stalls, counts as dead, and wakes up: no partition is committed twice."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from chaos.inputs import digest, undisturbed, write_inputs
from chaos.killing import TREADLE, Sandbox

from treadle.orchestrator.dispatcher.ledger.ledger import Committed, Epoch, read
from treadle.orchestrator.embedded import running_driver, running_server
from treadle.primitives.sealing import load_or_create_key, run_key
from treadle.primitives.stores.store import Store

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]
STALL = 5.0


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    box = Sandbox(tmp_path)
    yield box
    box.close()


@contextmanager
def another_driver(sandbox: Sandbox) -> Iterator[None]:
    """`treadle worker` on the same Temporal, store and key, like on a second host."""
    server = running_server(sandbox.home)
    assert server is not None
    known = {
        "TEMPORAL_ADDRESS": server.address,
        "TEMPORAL_NAMESPACE": server.namespace,
        "TREADLE_STORE": sandbox.home.store.as_uri(),
    }
    worker = subprocess.Popen([TREADLE, "worker"], env=sandbox.environ() | known)
    try:
        yield
        assert worker.poll() is None, "the other driver did not live"
    finally:
        worker.terminate()
        worker.wait(20)


@pytest.mark.parametrize("workflow", ["terasort", "kmeans"])
def test_a_driver_that_was_stopped_for_a_while_commits_nothing_twice(sandbox: Sandbox, workflow: str) -> None:
    inputs = write_inputs(sandbox.root / "data")[workflow]
    expected = undisturbed(sandbox, workflow, inputs)
    target = sandbox.root / "disturbed"
    sandbox.submit(f"{workflow}.yaml", "stalled", target=target, log=sandbox.log.path, seconds=0.3, **inputs)
    assert sandbox.wait_for_task(0.0)
    driver = running_driver(sandbox.home)
    assert driver is not None
    os.kill(driver.pid, signal.SIGSTOP)
    try:
        with another_driver(sandbox):
            time.sleep(STALL)
            os.kill(driver.pid, signal.SIGCONT)
            done = sandbox.treadle("watch", "stalled")
            assert done.returncode == 0, done.stderr
    finally:
        os.kill(driver.pid, signal.SIGCONT)
    assert digest(target) == expected
    commits, epochs = ledger_of(sandbox, "stalled")
    assert epochs > 1, "nobody took over: the test did not test anything"
    assert commits
    assert {key: count for key, count in commits.items() if count > 1} == {}


def ledger_of(sandbox: Sandbox, run: str) -> tuple[Counter[tuple[str, int]], int]:
    """(commits by segment and partition, maximum of epochs in a chain) over all ledgers of the run."""
    store = Store.open(sandbox.home.store.as_uri())
    key = run_key(load_or_create_key(sandbox.home.key), run)
    prefixes = {
        info.name.split("/ledger/")[0] for info in store.list(f"runs/{run}/segments/") if "/ledger/" in info.name
    }
    commits: Counter[tuple[str, int]] = Counter()
    most = 0
    for prefix in prefixes:
        records = read(store, prefix, key)
        most = max(most, sum(isinstance(record, Epoch) for record in records))
        commits.update((r.segment, r.outcome.partition) for r in records if isinstance(r, Committed))
    return commits, most
