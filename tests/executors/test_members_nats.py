"""Resident functions behind NATs, which block callers: two hosts behind one NAT each, and the driver on a third."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import namespaces
import pytest
from executors import test_members_gangs as gangs
from executors.elsewhere import Elsewhere
from executors.members_rig import FUNCTIONS, MODULE, Rig, workflow
from namespaces import Host, Nat, Nats, cut, two_nats

from treadle.dsl.model import Spec
from treadle.executors.program import Outcome
from treadle.executors.resident.coordinator_host import Meeting

pytestmark = [
    pytest.mark.skipif(bool(namespaces.unsupported()), reason=namespaces.unsupported()),
    pytest.mark.timeout(240),
]
PROOF = 64 << 10
"""Bytes each way that prove a path."""
LONG = 60.0
FAR = {"path", "relayed", "stored"}
"""The ways on which blocks of another member arrive."""


def shuffle(gate: str = "") -> Spec:
    """A shuffle of 4 MB. Its readers wait at the gate after they have read."""
    return workflow(12, making=0.1, size=40_000, gate=gate)


@pytest.fixture
def nats(request: pytest.FixtureRequest) -> Iterator[Nats]:
    with two_nats(*getattr(request, "param", (Nat(), Nat()))) as nats:
        for one, other in ((nats.left, nats.right), (nats.right, nats.left)):
            one.run("iptables", "-I", "INPUT", "-s", other.public)  # a rule that only counts
        yield nats


@pytest.fixture
async def rig(
    nats: Nats, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> AsyncIterator[Rig]:
    """With `open` as parameter, the functions run on the driver's host, and accept connections."""
    pytest.importorskip("cryptography", reason="TLS identities are made with the extra `tls`")
    (tmp_path / "sandboxes").mkdir()
    accepting = getattr(request, "param", "") == "open"
    place = Elsewhere([nats.public] if accepting else [nats.left, nats.right], tmp_path / "sandboxes")
    made = Rig(
        place,
        tmp_path,
        meeting=Meeting(f"tls://{nats.public.address}:0", inbound=accepting),
        functions=FUNCTIONS + gangs.FUNCTIONS,
    )
    monkeypatch.syspath_prepend(tmp_path / "project")
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    with nats.public.entered():
        await made.members.start()
    yield made
    await made.stop()


def direct(nats: Nats) -> int:
    """Bytes of packets between the members, counted by their hosts' kernels."""
    return sum(_received(one, other) for one, other in ((nats.left, nats.right), (nats.right, nats.left)))


def _received(host: Host, other: Host) -> int:
    """The rule may come after one that cuts the link."""
    lines = host.run("iptables", "-nvxL", "INPUT").splitlines()
    counts = [int(line.split()[1]) for line in lines if other.public in line and "DROP" not in line]
    return counts[0]


async def opened(nats: Nats) -> None:
    """Wait until a path is proved, and each reader at the gate has read the earlier data."""
    async with asyncio.timeout(LONG):
        while direct(nats) < 2 * PROOF:  # noqa: ASYNC110 (the kernel sends no notice)
            await asyncio.sleep(0.05)


async def finished(rig: Rig, nats: Nats, gate: Path, run: str, *, cut_off: bool = False) -> int:
    """Run with readers that wait at the gate until a path is open. Returns the bytes sent over it from then on."""
    running = asyncio.create_task(rig.run(shuffle(gate=str(gate)), run))
    await asyncio.wait({running, waiting := asyncio.create_task(opened(nats))}, return_when=asyncio.FIRST_COMPLETED)
    assert waiting.done(), running.result()
    await waiting
    with ExitStack() as stack:
        if cut_off:
            stack.enter_context(cut(nats.left, nats.right))
        before = direct(nats)
        await asyncio.to_thread(gate.touch)
        found = await running
        after = direct(nats)
    assert found.datasets["weights"] == (await rig.local(shuffle())).datasets["weights"]
    assert set(rig.counted.outcomes.values()) == {1}, "nothing was made twice"
    return after - before


def pulled(rig: Rig, run: str) -> list[Outcome]:
    """The outcomes of readers that pulled a block."""
    return [one for one in rig.outcomes(run, "weights") if FAR & one.read.keys()]


async def test_members_behind_nats_shuffle_directly(rig: Rig, nats: Nats, tmp_path: Path) -> None:
    """The first reader of each member reads before a path exists. Later readers' data comes over it."""
    over = await finished(rig, nats, tmp_path / "gate", "direct")
    later = sorted(sum(one.read.get(way, 0) for way in FAR) for one in pulled(rig, "direct"))[:-2]
    assert later
    assert over > sum(later)
    read = rig.read("direct", "weights")
    assert direct(nats) > read["path"] > 0
    assert read["store"] == read["peer"] == 0


async def test_a_path_cut_in_the_middle_costs_nothing_but_time(rig: Rig, nats: Nats, tmp_path: Path) -> None:
    over = await finished(rig, nats, tmp_path / "gate", "cut", cut_off=True)
    assert over < PROOF
    assert pulled(rig, "cut")


@pytest.mark.parametrize("nats", [(Nat("random"), Nat("random"))], indirect=True)
async def test_members_that_cannot_be_connected_exchange_through_coordinator_and_store(rig: Rig, nats: Nats) -> None:
    found = await rig.run(shuffle(), "apart")
    assert found.datasets["weights"] == (await rig.local(shuffle())).datasets["weights"]
    assert set(rig.counted.outcomes.values()) == {1}, "nothing was made twice"
    read = rig.read("apart", "weights")
    assert read["relayed"] + read["stored"] > 0
    assert read["path"] == read["peer"] == read["store"] == 0
    assert direct(nats) == 0
    assert [info.name for info in rig.engine.site.store.list("runs/apart/blocks")] == []


@pytest.mark.parametrize(
    "nats", [(Nat(), Nat()), (Nat("random"), Nat("random"))], indirect=True, ids=["kept", "random"]
)
@pytest.mark.parametrize("size", [10, 40_000], ids=["small values", "values as blocks"])
async def test_gang_behind_nats_leaves_the_same_as_on_local_processes(rig: Rig, size: int) -> None:
    """Small values go through the coordinator, large ones through the store, until and unless there is a path."""
    spec = gangs.workflow(size, members=2)
    found = await rig.run(spec, "gang")
    assert found.datasets == (await rig.local(spec)).datasets
    assert gangs.failures(rig, "gang") == []


@pytest.mark.parametrize("rig", ["open"], indirect=True)
async def test_gang_whose_members_accept_connections_meets_over_tls(rig: Rig, nats: Nats) -> None:
    spec = gangs.workflow(40_000, members=2)
    found = await rig.run(spec, "gang")
    assert found.datasets == (await rig.local(spec)).datasets
    assert rig.read("gang", "train")["store"] == 0, "every member was dialled"
