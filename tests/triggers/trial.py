"""One wave of schedules on a real installation: the produced records, the runs, and the expected runs."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from temporalio.client import Client
from triggers.installation import Execution, Installation, workflow
from triggers.trouble import PARTITIONS, Fault, Schedule, Sent, Step, Wave

from treadle.executors.runtime.event_source import topic_uuid
from treadle.primitives.events import offset_ranges
from treadle.triggers.registry.deployment import Deployment

Place = tuple[str, int, int]
"""(topic UUID, partition, offset)."""


@dataclass
class Subject:
    """A schedule's workflow, and the records of its topic."""

    schedule: Schedule
    place: Installation
    topic_id: str = ""
    records: dict[Place, Sent] = field(default_factory=dict)
    lows: dict[tuple[str, int], int] = field(default_factory=dict)
    """(topic UUID, partition) -> first offset that has not expired."""
    kinds: dict[int, str] = field(default_factory=dict)
    """Version -> types that its filter accepts."""

    @property
    def name(self) -> str:
        return f"s{self.schedule.seed}"

    # -- actions

    def begin(self) -> None:
        self.place.kafka.create_topic(f"{self.name}.dlt")
        self._make_topic()
        self._deploy(self.schedule.kinds, settled=True)

    def meet(self, step: Step) -> None:
        for one in step.sent:
            self._produce(one)
        match step.then:
            case "redeploy":
                self._deploy(step.kinds, settled=step.settled)
            case "recreate":
                self.place.kafka.delete_topic(self.name)
                self._make_topic()

    def ends(self) -> dict[tuple[str, int], int]:
        """(topic UUID, partition) -> the offset of its next record."""
        found: dict[tuple[str, int], int] = {}
        for topic_id, partition, offset in self.records:
            found[topic_id, partition] = max(offset + 1, found.get((topic_id, partition), 0))
        return found

    def expire(self, chance: random.Random, read: Mapping[tuple[str, int], int] | None) -> None:
        """Retention deletes records, read and unread ones.

        `read`: deletes only below these offsets; None: anywhere. A batch that was started and not committed must not
        lose its beginning and keep its end (decision 0016), so batches lose at least as many records as a batch may
        hold.
        """
        batched = "batch" in self.schedule.settings
        if batched and read is None:
            return
        for (topic_id, partition), end in self.ends().items():
            if topic_id == self.topic_id:
                least = (read or {}).get((topic_id, partition), 0) if batched else 0
                low = max(chance.randint(least, end), self.lows.get((topic_id, partition), 0))
                self.place.kafka.delete_records(self.name, low, partition)
                self.lows[topic_id, partition] = low

    def _make_topic(self) -> None:
        self.topic_id = topic_uuid(self.place.kafka.create_topic(self.name, PARTITIONS))

    def _deploy(self, kinds: str, *, settled: bool) -> None:
        document = workflow(self.name, self.name, kinds, **self.schedule.settings)
        self.kinds[self.place.deploy(document, settled=settled).version] = kinds

    def _produce(self, one: Sent) -> None:
        about = {"specversion": "1.0", "id": f"e{one.number}", "source": "/tests", "type": one.kind}
        headers = {f"ce_{name}": text.encode() for name, text in about.items()} if one.kind != "x" else {}
        value = b"%d" % one.number if one.kind != "x" else b"no event"
        (offset,) = self.place.kafka.produce(self.name, [value], partition=one.partition, headers=headers)
        self.records[self.topic_id, one.partition, offset] = one

    # -- expectations

    def identity(self, at: Place) -> Any:
        """The identity of a record. Records with the same identity are one event."""
        return self.records[at].number if self.schedule.dedupes else at

    def wanted(self) -> tuple[set[Any], set[Any]]:
        """(events that must have a run, events that may have one).

        For a deleted topic and for expired records it is not known how far they were read. For a deleted topic it is
        not even known which version was the newest then.
        """
        history = self.place.registry.history(self.name)
        here = [at for at in self.records if at[0] == self.topic_id]
        matching = [at for at in here if self.records[at].kind in self.kinds[_deciding(history, at)]]
        must = [at for at in matching if at[2] >= self.lows.get(at[:2], 0)]
        gone = [at for at in self.records if at[0] != self.topic_id and self.records[at].kind in _ever(self.kinds)]
        return set(map(self.identity, must)), set(map(self.identity, matching + gone))

    def judge(self, executions: Iterable[Execution]) -> Iterator[str]:
        """Yields the errors."""
        mine = [one for one in executions if one.run.startswith(f"{self.name}.")]
        for run, times in Counter(one.run for one in mine).items():
            if times > 1:
                yield f"{run} was started {times} times"
        got = Counter(self.identity(at) for one in mine for at in self.events_of(one.run))
        must, may = self.wanted()
        yield from (f"lost: {one}" for one in must - got.keys())
        yield from (f"not asked for: {one}" for one in got.keys() - may)
        yield from (f"{times} times: {one}" for one, times in got.items() if times > 1)
        if self.schedule.settings.get("maxActive") == 1 and not self.schedule.dedupes:
            yield from self._out_of_order(mine)

    def events_of(self, run: str) -> list[Place]:
        """The records of a run."""
        given = self.place.submission(run).inputs["events"]
        if "kafka" in given:
            kafka = given["kafka"]
            chosen = offset_ranges.stretches(kafka["start"], kafka["runs"])
            return [(kafka["topicId"], kafka["partition"], offset) for some in chosen for offset in some]
        if self.schedule.dedupes:
            return [next(at for at, sent in self.records.items() if sent.number == number) for number in given["items"]]
        *_, topic_id, partition, first = run.split(".")
        later = sorted(at for at in self.records if at[:2] == (topic_id, int(partition)) and at[2] >= int(first))
        found: list[Place] = []
        for number in given["items"]:
            found.append(next(at for at in later if self.records[at].number == number and at not in found))
        return found

    def _out_of_order(self, mine: Iterable[Execution]) -> Iterator[str]:
        last: dict[tuple[str, int], int] = defaultdict(lambda: -1)
        for one in sorted(mine, key=lambda one: one.started):
            for topic_id, partition, offset in self.events_of(one.run):
                if offset < last[topic_id, partition]:
                    yield f"out of order: {one.run}"
                last[topic_id, partition] = offset


def _deciding(history: list[Deployment], at: Place) -> int:
    """The newest version that begins at or before the record."""
    topic_id, partition, offset = at
    for one in reversed(history):
        begins = {(begin.topic_id, begin.partition): begin.offset for begin in (one.begins or {}).get("live", ())}
        if begins.get((topic_id, partition), 0) <= offset:
            return one.version
    return history[0].version


def _ever(kinds: Mapping[int, str]) -> str:
    return "".join(kinds.values())


class Trial:
    """A wave."""

    def __init__(self, wave: Wave, place: Installation, client: Client) -> None:
        self._wave, self._place, self._client = wave, place, client
        self._chance = random.Random(f"faults {wave.seed}")
        self.subjects = [Subject(schedule, place) for schedule in wave.schedules]

    async def run(self, patience: float) -> list[str]:
        """Returns the errors, after at most `patience` seconds without a new run."""
        for subject in self.subjects:
            await asyncio.to_thread(subject.begin)
        if not self._place.alive():
            self._place.serve()
        for number, (fault, wait) in enumerate(zip(self._wave.faults, self._wave.waits, strict=True)):
            await self._round(number, fault)
            await asyncio.sleep(wait)
            if not self._place.alive():
                self._place.serve()
        return await self._settled(patience)

    async def _round(self, number: int, fault: Fault) -> None:
        """A stopped broker accepts no records, and only existing records can expire. All other steps come at once."""
        match fault:
            case "the broker restarts":
                await asyncio.to_thread(self._meet, number)
                await asyncio.to_thread(self._restart_broker)
            case "records expire":
                await asyncio.to_thread(self._expire, number)
            case _:
                await asyncio.gather(asyncio.to_thread(self._meet, number), asyncio.to_thread(self._suffer, fault))

    def _meet(self, number: int) -> None:
        for subject in self.subjects:
            subject.meet(subject.schedule.steps[number])

    def _suffer(self, fault: Fault) -> None:
        place, some = self._place, self._chance
        match fault:
            case "kill a service" if place.alive():
                place.end(some.choice(place.alive()), signal.SIGKILL)
            case "kill a service between start and commit":
                place.end_all()
                place.serve("before", some.randint(1, 2 * len(self.subjects)))
            case "kill a service after a commit":
                place.end_all()
                place.serve("after", some.randint(1, 2 * len(self.subjects)))
            case "a second service" if len(place.alive()) < 3:
                place.serve()
            case "a service leaves" if place.alive():
                place.end(some.choice(place.alive()), signal.SIGTERM)
            case "stall a service" if place.alive():
                self._stall(some.choice(place.alive()).pid, 4.0)
            case "Temporal hangs":
                self._stall(place.temporal(), some.uniform(1, 3))
            case "Temporal is killed":
                place.kill_temporal(some.uniform(0, 5))
            case "Temporal is away for a minute":
                place.kill_temporal(60)
            case "Kafka forgets the offsets":
                place.end_all()
                for subject in self.subjects:
                    place.forget_offsets(subject.name, "live")
            case _:
                pass

    def _expire(self, number: int) -> None:
        """Half of the time no service reads, as if it was down for longer than the topics' retention."""
        down = self._chance.random() < 0.5
        if down:
            self._place.end_all()
        read = [subject.ends() if down else None for subject in self.subjects]
        self._meet(number)
        for subject, some in zip(self.subjects, read, strict=True):
            subject.expire(self._chance, some)

    def _restart_broker(self) -> None:
        self._place.kafka.kill() if self._chance.random() < 0.5 else self._place.kafka.stop()
        self._place.kafka.start()

    def _stall(self, pid: int, seconds: float) -> None:
        """Stop a process and let it continue. Others take its place in the meantime, without its knowledge."""
        os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)

    async def _settled(self, patience: float) -> list[str]:
        """Wait until no run is missing, or none has come for so long. Then wait a moment for surplus runs."""
        known, since = -1, time.monotonic()
        while True:
            if not self._place.alive():  # the last service may be a dying one
                self._place.serve()
            found = await self._executions()
            if len(found) != known:
                known, since = len(found), time.monotonic()
            wrong = self._judged(found)
            if not any(" lost: " in one for one in wrong) or time.monotonic() > since + patience:
                break
            await asyncio.sleep(0.3)
        await asyncio.sleep(1.0)
        return self._judged(await self._executions())

    async def _executions(self) -> list[Execution]:
        every = [await self._place.executions(self._client, f"{one.name}.live") for one in self.subjects]
        return [execution for some in every for execution in some]

    def _judged(self, found: list[Execution]) -> list[str]:
        return [f"schedule {one.schedule.seed} {wrong}" for one in self.subjects for wrong in one.judge(found)]
