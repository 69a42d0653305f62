"""Gangs that take the slots of several hosts: the bytes of local processes, together or not at all."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import namespaces
import pytest
from eventually import eventually
from examples.gang_workflows import MODELS, models
from orchestrator.broken_runs import ROOT, values
from orchestrator.dispatcher import gang_host
from orchestrator.dispatcher.test_gangs import gang
from orchestrator.record_histories import spec

from treadle.client.testing import Engine, EngineFailure, EngineResult
from treadle.client.testing.harness import Harness
from treadle.client.testing.strategies import Case
from treadle.dsl.model import Spec
from treadle.orchestrator.dispatcher.decisions.gang_hosts import FAN_OUT, HostRoom, by_subtrees, shares
from treadle.orchestrator.dispatcher.driver_context.run_context import Lender, Lending
from treadle.orchestrator.dispatcher.ledger.ledger import Failed, read
from treadle.orchestrator.dispatcher.lending import borrowed_slots
from treadle.orchestrator.dispatcher.lending.slot_lender import SlotLender
from treadle.primitives.channels.gang import CHANNELS
from treadle.primitives.coordinator.tree import parent
from treadle.primitives.stores.shared_memory import SHARED_MEMORY
from treadle.primitives.stores.store import Store

Entered = Callable[[], AbstractContextManager[None]]
Popen = Callable[..., "subprocess.Popen[str]"]


def here(*command: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(command, text=True, **options)


class Drivers:
    """A driver in this process, and hosts as processes that lend it slots."""

    def __init__(self, folder: Path, memory: Path, slots: int, address: str, entered: Entered = nullcontext) -> None:
        self.folder, self.memory = folder, memory
        self.slots, self.stack = slots, ExitStack()
        with entered():
            self.harness = Harness(folder, ROOT)
        self.store = Store.open(f"file://{folder}/store")
        self.lenders: list[Lender] = []
        self.processes: list[subprocess.Popen[str]] = []
        self.engine = self.driver("here", address, entered)

    def driver(self, name: str, address: str, entered: Entered = nullcontext) -> Engine:
        """A driver in this process that lends and borrows."""
        root = self.memory / name
        executor = self.harness.local(self.slots, root, entered)
        with entered():
            hosts = self.harness.hosts(self.store, [root], [address])
        engine = self.harness.engine(self.store, executor, root, hosts)

        async def lend() -> None:
            lender = SlotLender(engine.site, address)
            self.stack.callback(lambda: self.harness.wait(lender.stop()))
            engine.site.lending = Lending(lender.address, self.find)
            self.lenders.append(Lender(self.slots, lender.address))

        self.harness.wait(lend())
        return engine

    async def find(self) -> Sequence[Lender]:
        return tuple(self.lenders)

    def host(self, name: str, address: str, popen: Popen = here, slots: int = 0) -> subprocess.Popen[str]:
        given = (self.folder / "key", self.store.url, self.memory / name, slots or self.slots, address)
        command = [sys.executable, gang_host.__file__, *map(str, given)]
        process = popen(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.processes.append(process)
        assert process.stdout is not None
        self.lenders.append(Lender(slots or self.slots, process.stdout.readline().strip()))
        return process

    def run(self, document: dict[str, Any], run: str) -> EngineResult | EngineFailure:
        return self.harness.run(self.engine, Case(document), self.folder, run)

    def failures(self, run: str, segment: str) -> list[Failed]:
        files = self.engine.site.files(run)
        found = read(self.store, files.segment(segment), files.key)
        return [one for one in found if isinstance(one, Failed) and one.partition == 0]

    def left_behind(self, run: str, hosts: Sequence[str] = ("*",)) -> list[str]:
        """Blocks of channels and checkpoints of a run in the store, and files of channels in the memory of hosts."""
        blocks = [info.name for info in self.store.list(f"runs/{run}/blocks")]
        inside = [name for name in blocks if f"/{CHANNELS}/" in name or "/checkpoints/" in name]
        return inside + [str(path) for host in hosts for path in self.memory.glob(f"{host}/{run}/{CHANNELS}/*")]

    def close(self) -> None:
        self.stack.close()
        for process in self.processes:
            process.communicate()
        self.harness.close()


@contextmanager
def drivers(
    folder: Path, slots: int, address: str = "tcp://127.0.0.1:0", entered: Entered = nullcontext
) -> Iterator[Drivers]:
    with tempfile.TemporaryDirectory(prefix="treadle-gangs-", dir=SHARED_MEMORY) as memory:
        made = Drivers(folder, Path(memory), slots, address, entered)
        try:
            yield made
        finally:
            made.close()


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Drivers]:
    """Two hosts with a slot each."""
    with drivers(tmp_path, 1) as made:
        made.host("there", "tcp://127.0.0.1:0")
        yield made


def trained(made: Drivers, engine: Engine, run: str) -> tuple[dict[str, bytes], set[str]]:
    """The files that both models leave, and the slots that ran them."""
    base = made.folder / run
    base.mkdir()
    engine.submit(
        Spec.model_validate(models("local", 4).model_dump(by_alias=True)), {}, base=base, roots=[MODELS], run=run
    )
    made.harness.wait(engine.run(run), 120)
    found = {path.name + path.parent.name: path.read_bytes() for path in sorted(base.rglob("*.npy"))}
    manifests = [engine.site.files(run).manifest(name) for name in ("kmeans", "logistic")]
    return found, {one.slot for manifest in manifests if manifest for one in manifest.outcomes}


@pytest.mark.parametrize("count", [2, 4])
def test_gangs_over_hosts_leave_the_bytes_of_local_processes(
    tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(MODELS))
    with drivers(tmp_path, 4 // count) as made:
        for number in range(count - 1):
            made.host(f"host{number}", "tcp://127.0.0.1:0")
        found, slots = trained(made, made.engine, "over-hosts")
        assert len({slot.partition("/")[0] for slot in slots}) == count
        alone = made.harness.engine(made.store, made.harness.local(4, made.memory / "alone"), made.memory / "alone")
        meant, _ = trained(made, alone, "alone")
    assert len(meant) == 8
    assert found == meant


def test_gang_over_hosts_meets_with_tls_between_namespaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if reason := namespaces.unsupported():
        pytest.skip(reason)
    monkeypatch.syspath_prepend(str(MODELS))
    with (
        namespaces.two_hosts() as (left, right),
        drivers(tmp_path, 2, f"tls://{left.address}:0", left.entered) as made,
    ):
        made.host("right", f"tls://{right.address}:0", right.popen)
        found, slots = trained(made, made.engine, "over-hosts")
        assert len({slot.partition("/")[0] for slot in slots}) == 2
        alone = made.harness.engine(made.store, made.harness.local(4, made.memory / "alone"), made.memory / "alone")
        assert found == trained(made, alone, "alone")[0]


@pytest.mark.parametrize("step", [2, 5])
def test_member_on_another_host_may_be_killed_in_mid_gang(two: Drivers, step: int) -> None:
    found = two.run(spec(all=gang("dies_at", flat=True, **{"with": {"step": step}})), f"killed-{step}")
    assert sorted(values(found, "all")) == [[6, [0, 2]], [6, [1, 3]]]
    assert [one.failure for one in two.failures(f"killed-{step}", "all")] == ["worker lost"]
    assert two.left_behind(f"killed-{step}") == []


def test_gang_runs_again_when_a_host_is_killed_in_its_midst(two: Drivers, tmp_path: Path) -> None:
    """Until another host has come, the gang takes no slots."""
    folder = tmp_path / "notes"
    folder.mkdir()
    document = spec(sum=gang("waits_for_word", **{"with": {"folder": str(folder)}}))
    found: list[Any] = []
    running = threading.Thread(target=lambda: found.append(two.run(document, "lost")))
    running.start()
    eventually(lambda: len(list(folder.glob("sum-*.1"))) == 2)
    two.processes[0].kill()
    eventually(lambda: "throttled" in {one.failure for one in two.failures("lost", "sum")})
    (folder / "go").touch()
    two.host("another", "tcp://127.0.0.1:0")
    running.join()
    assert values(found[0], "sum") == [[6], [6]]
    known = two.failures("lost", "sum")
    assert (known[0].failure, known[0].spent) == ("worker lost", False)
    assert "the gang needs 2 slots at once: 1 host has 1" in known[1].message


def test_two_drivers_that_want_all_slots_for_their_gangs_take_turns(two: Drivers, tmp_path: Path) -> None:
    """Each begins with its own slot. Both take slots in one order, so neither waits for the other's."""
    other, base = two.driver("other", "tcp://127.0.0.1:0"), tmp_path / "other"
    base.mkdir()
    three = {"range": 6, "partitions": 3}
    stages = {f"s{number}": gang("everything", three, flat=True, gang=3) for number in range(3)}
    assert two.harness.submit(two.engine, Case(spec(**stages)), tmp_path, "ours") is None
    assert two.harness.submit(other, Case(spec(**stages)), base, "theirs") is None
    found: list[Any] = []
    running = threading.Thread(target=lambda: found.append(two.harness.result(other, "theirs")))
    running.start()
    found.append(two.harness.result(two.engine, "ours"))
    running.join()
    for result in found:
        assert [len(values(result, stage)) for stage in stages] == [3, 3, 3]
    assert [two.failures(run, stage) for run in ("ours", "theirs") for stage in stages] == [[]] * 6


def test_gang_that_does_not_get_its_slots_in_time_gives_them_back(
    two: Drivers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(borrowed_slots, "GATHERING", 1.0)
    folder = tmp_path / "notes"
    folder.mkdir()
    stages = {
        "busy": {
            **gang("waits_for_word", {"range": 1, "partitions": 1}, **{"with": {"folder": str(folder)}}),
            "gang": 1,
        },
        "sum": gang("counted", **{"with": {"folder": str(folder)}}),
        "small": {"type": "map", "input": {"range": 1}, "uses": "orchestrator.history_functions:same"},
    }
    found: list[Any] = []
    running = threading.Thread(target=lambda: found.append(two.run(spec(**stages), "busy")))
    running.start()
    eventually(lambda: bool(two.failures("busy", "sum")))
    (folder / "go").touch()
    running.join()
    assert values(found[0], "sum") == [[6], [6]]
    (known, *_) = two.failures("busy", "sum")
    assert (known.failure, known.spent) == ("throttled", False)
    assert "its slots were not all idle after 1 s" in known.message


def test_shares_are_idle_slots_of_few_hosts_with_this_host_first() -> None:
    hosts = [HostRoom("a", 4, 4), HostRoom("b", 8, 1), HostRoom("here", 2, 2)]
    assert shares(6, hosts, "here") == {"here": 2, "a": 4}
    assert shares(7, hosts, "here") == {"here": 2, "a": 4, "b": 1}
    assert shares(10, hosts, "here") == {"here": 2, "b": 8}  # it waits for slots of two hosts, not of three
    assert shares(14, hosts, "here") == {"here": 2, "b": 8, "a": 4}
    assert shares(15, hosts, "here") is None


@pytest.mark.parametrize(("size", "hosts"), [(4, 2), (8, 2), (16, 2), (64, 4), (100, 3)])
def test_ranks_of_a_host_are_connected_in_the_tree(size: int, hosts: int) -> None:
    order = by_subtrees(size)
    assert sorted(order) == list(range(size))
    host_of = {rank: place * hosts // size for place, rank in enumerate(order)}
    links = [(rank, parent(rank, FAN_OUT)) for rank in range(1, size)]
    between = sum(host_of[rank] != host_of[above] for rank, above in links if above is not None)
    consecutive = sum(rank * hosts // size != above * hosts // size for rank, above in links if above is not None)
    assert between <= 3 * (hosts - 1)
    assert between < consecutive
    assert host_of[0] == 0


@contextmanager
def linked_drivers(folder: Path, slots: int) -> Iterator[tuple[Drivers, namespaces.Host, namespaces.Host]]:
    """Drivers on two hosts with one link between them, and the hosts. Skips the test where that is not possible."""
    if reason := namespaces.unsupported():
        pytest.skip(reason)
    with (
        namespaces.two_hosts() as (left, right),
        drivers(folder, slots, f"tls://{left.address}:0", left.entered) as made,
    ):
        made.host("right", f"tls://{right.address}:0", right.popen)
        yield made, left, right


def test_reduce_sends_one_partial_result_from_another_host(tmp_path: Path) -> None:
    """Two hosts with two members each. The link counts the bytes."""
    size, rounds = 1_000_000, 4
    with linked_drivers(tmp_path, 2) as (made, _, right):
        given = {"with": {"size": size // 8, "rounds": rounds}}
        before = sent_by(right)
        found = made.run(spec(sum=gang("sums_arrays", {"range": 4, "partitions": 4}, gang=4, **given)), "sums")
        assert values(found, "sum") == [[10.0 * rounds], [0.0], [0.0], [0.0]]
        assert rounds * size < sent_by(right) - before < 1.5 * rounds * size


@pytest.mark.parametrize("all_reduce", [False, True])
def test_value_for_all_members_goes_once_to_each_host(tmp_path: Path, all_reduce: bool) -> None:
    """Two hosts with three members each. The link counts the bytes."""
    size, rounds = 1_000_000, 4
    with linked_drivers(tmp_path, 3) as (made, left, _):
        given = {"with": {"size": size // 8, "rounds": rounds, "all_reduce": all_reduce}}
        before = sent_by(left)
        found = made.run(spec(got=gang("gets_arrays", {"range": 6, "partitions": 6}, gang=6, **given)), "got")
        assert values(found, "got") == [[rounds * (21.0 if all_reduce else 1.0)]] * 6
        assert rounds * size < sent_by(left) - before < 1.5 * rounds * size


def sent_by(host: namespaces.Host) -> int:
    """Bytes that the host has sent over its link."""
    return int(host.run("cat", "/sys/class/net/eth0/statistics/tx_bytes"))
