"""The hot paths that have a budget. Each function prepares its work in a folder, and returns the work.

All work runs in one thread, without servers, and nothing in it depends on time. So its calls are the same every time.
"""

from __future__ import annotations

import asyncio
import selectors
import socket
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from executors.bench import KEY, Bench
from executors.operation_functions import FIRST, by, concat, first_column, identity, name, per_record
from primitives.channels import simulated
from triggers.deployed import document, read

from treadle.client.call_sending import CallOptions, CallSender
from treadle.client.session_calls import SessionCalls
from treadle.client.session_link import SessionLink
from treadle.client.testing import Engine
from treadle.dsl.document.workflow_files import linked, load
from treadle.dsl.normalise import normalise
from treadle.dsl.validation.validate import validate
from treadle.executors.interface import Capabilities
from treadle.executors.operations.calls import CallResult
from treadle.executors.program import (
    BlockInput,
    ItemSplit,
    Keep,
    Outcome,
    Partition,
    Program,
    RangeSplit,
    Reduce,
    Report,
    Scatter,
    Task,
)
from treadle.executors.runtime.process_setup import Meter
from treadle.orchestrator.dispatcher.decisions.dispatch import Dispatch
from treadle.orchestrator.dispatcher.decisions.task_sizing import TaskSizes
from treadle.orchestrator.dispatcher.ledger.ledger import Committed, Ledger
from treadle.orchestrator.dispatcher.orders import NodeOrder
from treadle.orchestrator.dispatcher.segments.execute_segment import Desk, run_segment
from treadle.orchestrator.dispatcher.segments.session import run_session
from treadle.orchestrator.plan.plan import Policy, session_plan
from treadle.orchestrator.planner import RunLocation, make_plan
from treadle.orchestrator.run_store.call_log import NoMoreCalls, session_submission
from treadle.primitives.blocks import Blocks
from treadle.primitives.channels.io.payloads import ValueCodec
from treadle.primitives.channels.io.peer_routes import Roads
from treadle.primitives.channels.protocols.broadcast import BroadcastMachine
from treadle.primitives.encoding.by_value import pack
from treadle.primitives.events import Record
from treadle.primitives.stores.shared_memory import HostFolder
from treadle.primitives.stores.store import Store
from treadle.primitives.wire import Connection
from treadle.primitives.wire.transports import Plain
from treadle.triggers.kafka.machine import TriggerMachine
from treadle.triggers.kafka.machine_events import Arrived, Assigned, EffectDone, Instruction, KafkaPartition, Start
from treadle.triggers.kafka.matching import lineage
from treadle.triggers.kafka.payloads.event_payloads import Payloads
from treadle.triggers.registry.deployment import Deployment, Position

Work = Callable[[], object]
CAN = Capabilities("local", 4, shares_host=False)
TESTS = Path(__file__).parents[1]


def planning(folder: Path) -> Work:
    """The example `wordcount`: load, validate and plan it."""
    (folder / "1.txt").write_text("some words\n")
    given, about = {"corpus": f"{folder}/*.txt", "partitions": 8, "most": 10}, {"id": "r", "startTime": "2026-01-01"}
    site = RunLocation({"local": CAN}, 1 << 30, folder.as_uri())

    def work() -> None:
        found = load(TESTS.parent / "examples" / "wordcount" / "wordcount.yaml")
        assert not validate(found)
        make_plan(linked(found), given, about, {}, folder, site)

    return work


# -- the driver ----------


class Instant:
    """An executor whose slots end each task at once. It is also the slot, of any name."""

    capabilities, task = CAN, ""

    def __init__(self, store: Store, name: str = "") -> None:
        self.name = name
        self.slots = [] if name else [Instant(store, f"s{number}") for number in range(CAN.slots)]
        self._block = Blocks(store, "r").put("b", "objects", [[pack([CallResult(1)])]], "store", 1 << 10)

    async def start(self) -> None: ...
    async def stop(self) -> None: ...

    async def run(self, task: Task, report: Callable[[Report], None]) -> None:
        for one in task.partitions:
            report(Outcome(one.index, one.attempt, "objects", 1, self._block, seconds=1.0))


def driver_in(folder: Path) -> Engine:
    store = Store.open(folder.as_uri())
    return Engine(store, Instant(store), KEY, None)


class _Idle(selectors.DefaultSelector):
    """Instead of waiting, it moves the clock to the time of the next timer."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(timeout and 0)
        self.now += 0 if found else timeout or 0
        return found


class _Loop(asyncio.SelectorEventLoop):
    """Timers are due when nothing else is to be done, so that it does not matter how long the work takes."""

    def __init__(self) -> None:
        self._idle = _Idle()
        super().__init__(self._idle)

    def time(self) -> float:
        return self._idle.now


def run_alone(work: Coroutine[Any, Any, object]) -> None:
    with asyncio.Runner(loop_factory=_Loop) as runner:
        runner.run(work)


async def _inline(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    return function(*arguments, **keywords)


@contextmanager
def without_chance() -> Iterator[None]:
    """No function goes to another thread, and the memory of a task that took a millisecond is not looked up."""
    with mock.patch.object(asyncio, "to_thread", _inline), mock.patch.object(Meter, "peak_memory", return_value=0):
        yield


def tasks_in_driver(folder: Path) -> Work:
    """A segment of 1,000 tasks from its start to its manifest: dispatch, slots and commits."""
    stage = {"type": "map", "input": {"range": 1000, "partitions": 1000}, "uses": name(identity)}
    spec = read({"apiVersion": "treadle/v1", "name": "w", "stages": {"only": stage}})
    driver = driver_in(folder)
    run = driver.site.open(driver.submit(spec, {}, base=folder, roots=[TESTS], run="r"))
    node: Any = run.plan.graph.nodes[0]
    return lambda: run_alone(run_segment(run, node, NodeOrder("r", node.id), Desk()))


def dispatch_of_tasks(folder: Path) -> Work:
    """The decisions about 1,000 tasks in four slots."""
    core, slots = Dispatch(Policy(), range(1000), TaskSizes(4, first=1)), ("a", "b", "c", "d")

    def work() -> None:
        while not core.over:
            for slot, task in [(slot, core.next_task(slot, 0.0)) for slot in slots]:
                for attempt in task.attempts if task else ():
                    core.done(slot, Outcome(attempt.partition, 1, "objects", 1, seconds=1e3), 0.0)
                core.ended(slot)

    return work


def ledger_groups(folder: Path) -> Work:
    """100 groups of 10 commits."""
    ledger = Ledger(Store.open(folder.as_uri()), "runs/r/segments/s", KEY)

    def work() -> None:
        for group in range(100):
            for partition in range(10):
                ledger.append(Committed("s", Outcome(10 * group + partition, 1, "objects", 1)))
            ledger.flush()

    return work


# -- workers ----------


def tasks_in_worker(folder: Path) -> Work:
    """200 partitions of one record each."""
    bench, reports = Bench(folder), list[Report]()
    parts = tuple(Partition(number, ItemSplit((number,))) for number in range(200))
    task = Task("task", bench.job, Program("segment", (per_record(identity),), Keep()), parts)
    return lambda: bench.runtime.run(task, KEY, reports.append)


def map_of_records(folder: Path) -> Work:
    """10,000 records, with a call for each."""
    bench = Bench(folder)
    return lambda: bench.outcome(per_record(identity), source=RangeSplit(0, 10_000))


def shuffle_of_records(folder: Path) -> Work:
    """10,000 pairs with 1,000 keys to 16 targets, and the fold of each target."""
    bench = Bench(folder)
    pairs = bench.blocks_of([(f"k{number % 1000}", number) for number in range(10_000)])
    fold = Reduce("r", "key", combine=name(concat), by=FIRST)

    def work() -> None:
        block = bench.outcome(source=pairs, tail=Scatter("s", FIRST, 16)).block
        assert block is not None
        for target in range(16):
            bench.outcome(fold, source=BlockInput(((block.slice(target),),)))

    return work


def shuffle_of_arrays(folder: Path) -> Work:
    """500,000 rows of an array to 16 targets, by a function of all rows."""
    bench = Bench(folder)
    rows = bench.blocks_of(np.arange(1_000_000).reshape(-1, 2), kind="array")
    return lambda: bench.outcome(source=rows, tail=Scatter("s", by(first_column), 16))


# -- blocks ----------


def small_blocks(folder: Path) -> Work:
    """100 blocks of 1 KiB, put on a host and read."""
    return blocks_in(folder, "objects", [b"x" * 1000], 100, "host")


def stored_blocks(folder: Path) -> Work:
    """20 blocks of 1 KiB, put into the store and read."""
    return blocks_in(folder, "objects", [b"x" * 1000], 20, "store")


def large_block(folder: Path) -> Work:
    """An array of 100 MB, put on a host and read."""
    return blocks_in(folder, "array", np.ones(12_500_000), 1, "host")


def blocks_in(folder: Path, kind: Any, part: Any, count: int, place: Any) -> Work:
    blocks = Blocks(Store.open(folder.as_uri()), "r", HostFolder(folder / "host"))

    def work() -> None:
        for number in range(count):
            blocks.get(blocks.put(f"s/{number}.1", kind, [part], place).slice(0))

    return work


# -- sessions ----------


class SessionParts:
    """A client and the driver of a session with 200 calls, to be called in this order."""

    def __init__(self, folder: Path) -> None:
        site = driver_in(folder).site
        files, blocks = site.files("s"), Blocks(site.store, "s")
        files.create("spec", session_submission("s", "session", "local"))
        files.create("plan", session_plan("", "local", CAN))
        self._run = site.open("s")
        with mock.patch.object(threading.Thread, "start"):
            self._link = SessionLink(files, blocks, lambda: "running")
        sender = CallSender(self._link, blocks, lambda _: "store")
        self._calls = SessionCalls(sender, lambda _: 4, CallOptions(), reuse=False)

    def submit(self) -> None:
        self._futures = [self._calls.submit(identity, number) for number in range(200)]
        self._link.send(NoMoreCalls())
        self._link._turn()  # private: a turn of the thread that was not started

    def drive(self) -> None:
        node: Any = self._run.plan.graph.nodes[0]
        run_alone(run_session(self._run, node, NodeOrder("s", node.id), Desk()))

    def results(self) -> None:
        self._link._turn()
        assert [future.result(0) for future in self._futures] == [1] * 200


def session_submit(folder: Path) -> Work:
    """A client submits the calls and writes them to the call log."""
    return SessionParts(folder).submit


def session_driver(folder: Path) -> Work:
    """A driver reads the calls, has them run, and commits them."""
    (parts := SessionParts(folder)).submit()
    return parts.drive


def session_results(folder: Path) -> Work:
    """A client reads the commits, and gives the results to the futures."""
    (parts := SessionParts(folder)).submit()
    parts.drive()
    return parts.results


# -- channels and events ----------


class _Sockets:
    """A socket loop that the work drives itself."""

    def __init__(self) -> None:
        self.handlers: dict[int, Callable[[int], None]] = {}

    def do(self, action: Callable[[], Any]) -> Any:
        return action()

    def register(self, fd: int, handler: Callable[[int], None]) -> None:
        self.handlers[fd] = handler


def channel_messages(folder: Path) -> Work:
    """500 values from one member to another, over a socket."""
    net = simulated.Network(lambda name: BroadcastMachine("c", name), lambda *_: (one for one in list[Any]()))
    sims, ends = [net.join(2), net.join(2)], socket.socketpair()
    while any(net.views.values()):
        net.step(0)
    loop: Any = _Sockets()

    def side(me: int) -> Callable[[Iterable[Any]], None]:
        def send(sends: Iterable[Any]) -> None:
            for target, message in sends:
                roads.send(target, message)

        def receive(sender: str, message: Any) -> None:
            send(sims[me].machine.message(sender, message))

        roads = Roads(loop, sims[me].name, "r", KEY, lambda *_: None, receive, lambda _: None)
        roads.opened(sims[1 - me].name, Connection(ends[me], Plain(ends[me]), name="the other side"))
        return send

    sides, codec = (side(0), side(1)), ValueCodec(Blocks(Store.open(folder.as_uri()), "r"), "g", lambda: False)

    def work() -> None:
        for number in range(500):
            sides[0](sims[0].machine.send(codec.encode(number)))
            for end in reversed(ends):
                loop.handlers[end.fileno()](0)
            cast = sims[1].machine.receive()
            assert cast is not None
            assert codec.decode(cast.payload) == number
            sides[1](sims[1].machine.took(cast))

    return work


def kafka_records(folder: Path) -> Work:
    """1,000 records of a topic, each to the start of a run with that record as its input."""
    trigger = {"type": "kafka", "connection": "c", "topics": ["t"], "format": "json"}
    live = {**trigger, "with": {"orders": "${{ trigger.events }}"}}
    spec = normalise(read(document({"live": live}, inputs={"orders": {"type": "dataset"}})))
    begin = Position("t", "u", 0, 0)
    known = lineage([Deployment("orders", 1, 0.0, spec, {}, "", "/", begins={"live": (begin,)})], "live")
    assert known is not None
    newest, partition, machine = known.newest, KafkaPartition("t", "u", 0), TriggerMachine(known.batching)
    payloads = Payloads(Store.open(folder.as_uri()), KEY, lambda _: None)
    records = [Record("t", "u", 0, number, None, b'{"n": 1}', (), 1.0) for number in range(1000)]
    machine.handle(Assigned(partition, 0), 0.0)

    def started(start: Start) -> list[Instruction]:
        newest.order_for(start.batch, payloads.value)
        return machine.handle(EffectDone(start.ticket), 1.0)

    def work() -> None:
        for first in range(0, 1000, 100):
            judged = tuple(map(known.judge, records[first : first + 100]))
            todo = machine.handle(Arrived(partition, judged), 1.0)
            while starts := [one for one in todo if isinstance(one, Start)]:
                todo = [step for start in starts for step in started(start)]
        assert machine.started == 1000

    return work


DRIVER = (planning, tasks_in_driver, dispatch_of_tasks, ledger_groups)
WORKER = (tasks_in_worker, map_of_records, shuffle_of_records, shuffle_of_arrays)
BLOCKS = (small_blocks, stored_blocks, large_block)
SESSIONS = (session_submit, session_driver, session_results)
PATHS = {path.__name__: path for path in (*DRIVER, *WORKER, *BLOCKS, *SESSIONS, channel_messages, kafka_records)}
