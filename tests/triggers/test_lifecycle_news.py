"""Ids of lifecycle events depend only on the event. Delivery retries, gives up, and reports the undelivered events."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from typing import Any

import confluent_kafka
import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException
from hypothesis import given
from hypothesis import strategies as st

from treadle.executors.program import Keep
from treadle.orchestrator.lifecycle import sinks
from treadle.orchestrator.lifecycle.delivery import PAUSES, Announcer, Untellable
from treadle.orchestrator.lifecycle.emitter import begun_with, ended_with
from treadle.orchestrator.lifecycle.events import LARGEST_OUTPUTS, About, ended, run_news, stage_news, to_json
from treadle.orchestrator.plan.plan import Graph, ItemsFeed, Policy, Segment
from treadle.orchestrator.scheduler.instructions import Problem
from treadle.primitives.events import Event
from treadle.primitives.events.decode import structured

ABOUT = About("orders.live.7", "orders", 1, "2026-11-21T10:00:00Z")
NOW = 1_760_000_000.25

# -- the events


def test_an_event_is_a_cloudevent_that_a_trigger_reads() -> None:
    event = run_news(ABOUT, "completed", NOW, **ended({"loaded": 3}, ("audit",), None))
    document = json.loads(to_json(event))
    assert document == {
        "specversion": "1.0",
        "id": "orders.live.7/2026-11-21T10:00:00Z/1/run.completed",
        "source": "/treadle/orders",
        "type": "dev.treadle.run.completed.v1",
        "subject": "orders.live.7",
        "time": "2025-10-09T08:53:20.250Z",
        "datacontenttype": "application/json",
        "data": {
            "run": "orders.live.7",
            "workflow": "orders",
            "resumption": 1,
            "skipped": ["audit"],
            "outputs": {"loaded": 3},
        },
    }
    assert structured(to_json(event)) == event


@given(
    st.lists(
        st.tuples(
            st.builds(About, st.sampled_from("ab"), st.just("w"), st.integers(1, 2), st.sampled_from(["t1", "t2"])),
            st.sampled_from(["started", "completed", "failed"]),
            st.sampled_from(["", "x", "y"]),
        ),
        max_size=8,
    ),
    st.floats(0, 1e9),
)
def test_the_same_happening_has_the_same_id_and_no_other_has_it(happened: list[Any], late: float) -> None:
    def told(now: float, about: About, what: Any, stage: str) -> str:
        return (stage_news(about, what, stage, now) if stage else run_news(about, what, now)).id

    assert [told(0.0, *one) for one in happened] == [told(late, *one) for one in happened]
    assert len({told(0.0, *one) for one in happened}) == len(set(happened))


def test_outputs_too_large_for_a_broker_are_left_out_and_it_says_so() -> None:
    found = ended({"all": "x" * LARGEST_OUTPUTS}, (), None)
    assert "outputs" not in found
    assert found["outputsOmitted"] is True


def test_failure_event_has_its_class_and_a_bounded_length() -> None:
    found = ended(None, (), Problem("user error", "x" * 10_000, "load"))["failure"]
    assert (found["class"], found["node"], len(found["message"])) == ("user error", "load", 2_000)


def segment(id_: str, *stages: str) -> Segment:
    return Segment(id_, stages, ItemsFeed((), ()), (), Keep(), Policy())


def test_each_stage_begins_once_and_ends_once() -> None:
    nodes = (
        segment("total.leaves", "parse", "total"),
        segment("total.level1", "total"),
        segment("total", "total", "say"),
    )
    graph = Graph(nodes)
    assert [begun_with(graph, node.id) for node in nodes] == [("parse", "total"), (), ("say",)]
    assert [ended_with(graph, node.id) for node in nodes] == [("parse",), (), ("total", "say")]


# -- delivery


class Listener:
    """An outlet with a script: True, "away" or "never" for each try; then it accepts every event."""

    def __init__(self, script: list[Any]) -> None:
        self.script, self.taken, self.tries = list(script), list[str](), Counter[str]()

    async def send(self, event: Event) -> None:
        self.tries[event.id] += 1
        answer = self.script.pop(0) if self.script else True
        if answer is not True:
            raise Untellable("no", away=answer == "away")
        self.taken.append(event.id)

    async def close(self) -> None:
        pass


def news(count: int) -> list[Event]:
    return [stage_news(ABOUT, "started", f"s{number}", 0.0) for number in range(count)]


async def _nothing(_: float) -> None:
    pass


SCRIPTS = st.lists(st.sampled_from([True, True, "away", "never"]), max_size=40)


@given(st.integers(0, 5), SCRIPTS)
def test_every_event_is_taken_in_order_or_said_to_be_untold(count: int, script: list[Any]) -> None:
    listener = Listener(script)
    events = news(count)
    untold = asyncio.run(Announcer(listener, _nothing).tell(events))
    given_up = [one.event.id for one in untold]
    ids = [event.id for event in events]
    assert sorted([*listener.taken, *given_up]) == sorted(ids)
    assert listener.taken == [one for one in ids if one in listener.taken]
    assert max(listener.tries.values(), default=0) <= len(PAUSES) + 1


def test_absent_sink_is_tried_once_per_event_until_it_answers() -> None:
    listener = Listener(["away"] * (len(PAUSES) + 1) + ["away", True])
    announcer = Announcer(listener, _nothing)

    async def all_of_it() -> list[int]:
        return [len(await announcer.tell(news(2))) for _ in range(4)]

    assert asyncio.run(all_of_it()) == [2, 2, 0, 0]
    assert listener.tries[news(1)[0].id] == len(PAUSES) + 1 + 1 + 1 + 1


def test_an_event_that_is_refused_is_not_tried_again_and_stops_no_other() -> None:
    listener = Listener([True, "never", True])
    (untold,) = asyncio.run(Announcer(listener, _nothing).tell(news(3)))
    assert untold.event.id == news(3)[1].id
    assert max(listener.tries.values()) == 1


def test_undelivered_events_survive_encoding_unchanged() -> None:
    (untold,) = asyncio.run(Announcer(Listener(["never"]), _nothing).tell(news(1)))
    assert msgspec.json.decode(msgspec.json.encode(untold), type=type(untold)) == untold


@pytest.mark.parametrize("count", [0, 1])
def test_pauses_between_tries_are_bounded(count: int) -> None:
    waited: list[float] = []

    async def pause(seconds: float) -> None:
        waited.append(seconds)

    asyncio.run(Announcer(Listener(["away"] * 99), pause).tell(news(count)))
    assert sum(waited) <= 10


class Mute:
    """A producer that never reports a delivery."""

    def __init__(self) -> None:
        self.reports: list[Any] = []

    def produce(self, *_: Any, on_delivery: Any, **__: Any) -> None:
        self.reports.append(on_delivery)

    def flush(self, _: float) -> int:
        return 1


async def test_a_topic_of_which_nothing_is_heard_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    mute = Mute()
    monkeypatch.setattr(confluent_kafka, "Producer", lambda *_, **__: mute)
    monkeypatch.setattr(sinks, "_REPORT", 0.05)
    outlet = sinks.TopicOutlet({}, "news")
    with pytest.raises(Untellable, match="topic news: nobody says") as caught:
        await asyncio.wait_for(outlet.send(news(1)[0]), 60)
    assert caught.value.away
    mute.reports[0](None, None)  # too late
    await asyncio.sleep(0)


class Refusing(Mute):
    """A producer that refuses, `at_once` or by its report."""

    def __init__(self, error: KafkaError, at_once: bool) -> None:
        super().__init__()
        self._error, self._at_once = error, at_once

    def produce(self, *_: Any, on_delivery: Any, **__: Any) -> None:
        if self._at_once:
            raise KafkaException(self._error)
        on_delivery(self._error, None)


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(
    ("code", "away"),
    [
        (KafkaError.MSG_SIZE_TOO_LARGE, False),
        (KafkaError._MSG_TIMED_OUT, True),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, True),
        (KafkaError._QUEUE_FULL, True),
    ],
)
async def test_oversized_event_does_not_mark_the_topic_as_absent(
    code: int, away: bool, at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = Refusing(KafkaError(code), at_once)
    monkeypatch.setattr(confluent_kafka, "Producer", lambda *_, **__: refusing)
    with pytest.raises(Untellable, match="topic news: ") as caught:
        await sinks.TopicOutlet({}, "news").send(news(1)[0])
    assert caught.value.away is away


async def test_a_receiver_that_never_ends_its_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "ANSWER", 0.5)

    ended = asyncio.Event()

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"1\r\nx\r\n")
                await writer.drain()
                await asyncio.sleep(0.02)
        writer.close()
        ended.set()

    async with await asyncio.start_server(drip, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        outlet = sinks.WebhookOutlet(f"http://127.0.0.1:{port}/", "whsec_" + "a" * 24)
        with pytest.raises(Untellable, match="does not answer: TimeoutError") as caught:
            await asyncio.wait_for(outlet.send(news(1)[0]), 60)
        assert caught.value.away
        await outlet.close()
        await ended.wait()
