"""Links between hosts are cut while a run needs them: the right result, or an error with a class, in time."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import namespaces
import pytest
from orchestrator.broken_runs import ROOT, Counted, values
from orchestrator.dispatcher.test_hosts import direct, wanted

from treadle.client.testing import EngineFailure, EngineResult
from treadle.client.testing.harness import Harness
from treadle.client.testing.hosts import SeveralHosts
from treadle.client.testing.strategies import Case
from treadle.executors.program import Outcome
from treadle.orchestrator.dispatcher.blocks.host_blocks import Hosts
from treadle.orchestrator.dispatcher.tasks import arguments
from treadle.primitives.errors import MissingError
from treadle.primitives.stores.shared_memory import SHARED_MEMORY
from treadle.primitives.stores.store import Store

Link = tuple[namespaces.Host, namespaces.Host]
OUTAGE = 1.0
"""Seconds; less than a reader waits for a host."""


class Linked:
    """Two hosts on one link, with a slot each. The driver is on the first."""

    def __init__(self, link: Link, folder: Path, memory: Path) -> None:
        self.link, self.base = link, folder
        with link[0].entered():
            self.harness = Harness(folder, ROOT)
        self.store = Store.open(f"file://{folder}/store")
        self.roots = [memory / host.name for host in link]
        pairs = list(zip(link, self.roots, strict=True))
        self.executor = SeveralHosts([self.harness.local(1, root, entered=host.entered) for host, root in pairs])
        self.hosts: list[Hosts] = []
        for host, root in pairs:
            with host.entered():
                self.hosts += self.harness.hosts(self.store, [root], [f"tls://{host.address}:0"])

    def run(self, run: str, at_gate: Any) -> EngineResult | EngineFailure:
        def see(segment: str, _outcome: Outcome) -> None:
            if segment == "gate":
                at_gate()

        counted = Counted(self.executor, see)
        engine = self.harness.engine(self.store, counted, self.roots[0], self.hosts)
        return self.harness.run(engine, Case(direct()), self.base, run)


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Linked]:
    if reason := namespaces.unsupported():
        pytest.skip(reason)
    with (
        namespaces.two_hosts() as link,
        tempfile.TemporaryDirectory(prefix="treadle-links-", dir=SHARED_MEMORY) as memory,
    ):
        made = Linked(link, tmp_path_factory.mktemp("links"), Path(memory))
        yield made
        made.harness.close()


@pytest.fixture(autouse=True)
def no_inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arguments, "INLINE_LIMIT", 0)


@pytest.mark.parametrize("both_ways", [True, False])
@pytest.mark.parametrize("source", [0, 1])
def test_a_link_that_is_cut_for_a_moment_changes_nothing(linked: Linked, both_ways: bool, source: int) -> None:
    with contextlib.ExitStack() as stack:

        def cut() -> None:
            outage = stack.enter_context(contextlib.ExitStack())
            outage.enter_context(namespaces.cut(linked.link[source], linked.link[1 - source], both_ways=both_ways))
            heal = threading.Timer(OUTAGE, outage.close)
            heal.start()
            stack.callback(heal.join)

        found = linked.run(f"moment-{both_ways}-{source}", cut)
    assert values(found, "all") == wanted(direct(), linked.base)


def test_a_link_that_stays_cut_ends_in_the_right_result_or_a_class(linked: Linked) -> None:
    with contextlib.ExitStack() as stack:
        try:
            found = linked.run("for-good", lambda: stack.enter_context(namespaces.cut(*linked.link)))
        except MissingError as error:  # the run succeeded; the block is now behind the cut
            assert error.block.startswith("counts/")  # noqa: PT017
            return
        if isinstance(found, EngineFailure):
            assert found.problem.failure == "unreachable"
        else:
            assert values(found, "all") == wanted(direct(), linked.base)
