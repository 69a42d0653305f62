"""The transport of events to their run, and compact lists of offsets."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.dsl.model import Input
from treadle.dsl.triggers import KafkaTrigger
from treadle.dsl.validation.inputs import InputError, accept
from treadle.executors.program import EventSplit
from treadle.executors.runtime.event_source import EventReader
from treadle.orchestrator.dispatcher.tasks.dataset_scope import Scope, feed_inputs
from treadle.orchestrator.planner.sources import EVENT_BYTES_EACH, EVENTS_EACH, Sources
from treadle.orchestrator.run_store.run_files import LoopResult, Manifest
from treadle.primitives import sealing
from treadle.primitives.errors import CorruptError, DataError, UsageError
from treadle.primitives.events import Record, offset_ranges
from treadle.primitives.events.decode import decode
from treadle.primitives.stores.store import Store
from treadle.triggers.kafka.batch import KafkaBatch, Match
from treadle.triggers.kafka.payloads import Payloads, Topic, choose
from treadle.triggers.kafka.payloads.event_payloads import is_plain
from treadle.triggers.kafka.payloads.transfer_choice import INLINE_BYTES, NEEDED, topic_of

KEPT = Topic(seconds=7 * 86_400)
NOW = 1_000_000.0
KEY = secrets.token_bytes(32)


def trigger(**more: Any) -> KafkaTrigger:
    known = {"type": "kafka", "connection": "broker", "topics": ["orders"], "format": "json"}
    return KafkaTrigger.model_validate(known | more)


def batch(values: dict[int, bytes], kafka: KafkaTrigger, age: float = 0.0, run: str = "run") -> KafkaBatch:
    records = [Record("orders", "uuid", 2, offset, None, value, time=NOW - age) for offset, value in values.items()]
    matched = tuple(Match(one, decode(one, kafka.format, kafka.connection), run) for one in records)
    return KafkaBatch(1, matched, max(values) + 1)


def payloads(store: Store, topic: Topic | None = KEPT) -> Payloads:
    return Payloads(store, KEY, lambda name: topic, now=lambda: NOW)


def _no_manifest(segment: str) -> Manifest:
    raise AssertionError(f"a range of events needs no segment, and {segment} was asked for")


def _no_loop(segment: str) -> LoopResult:
    raise AssertionError(f"a range of events needs no loop, and {segment} was asked for")


def splits(value: Any) -> list[Any]:
    """The partitions of a run with this value as its input."""
    sources = Sources({"inputs": {"events": value}}, Path())
    feed, parts, _ = sources.feed(sources.dataset_input("events"))
    found = list(feed_inputs(feed, Scope({}), _no_manifest, _no_loop))
    assert len(found) == parts
    return found


@given(st.sets(st.integers(0, 60), min_size=1), st.integers(0, 60), st.integers(0, 60))
def test_offsets_come_back_from_their_runs(chosen: set[int], one: int, other: int) -> None:
    ordered = sorted(chosen)
    start, runs = offset_ranges.runs_of(ordered)
    assert [offset for stretch in offset_ranges.stretches(start, runs) for offset in stretch] == ordered
    assert offset_ranges.count(runs) == len(ordered)
    first, stop = sorted((one, other))
    if wanted := ordered[first:stop]:
        assert offset_ranges.piece(start, runs, first, stop) == offset_ranges.runs_of(wanted)
    else:
        with pytest.raises(ValueError, match="empty"):
            offset_ranges.piece(start, runs, first, stop)


@pytest.mark.parametrize("wrong", [[], [3, 3], [4, 2], [-1]])
def test_offsets_that_do_not_ascend_are_refused(wrong: list[int]) -> None:
    with pytest.raises(ValueError, match="offset"):
        offset_ranges.runs_of(wrong)


@pytest.mark.parametrize("wrong", [(), (1, 2), (1, 0, 1), (-1,)])
def test_runs_that_cannot_be_are_refused(wrong: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="runs"):
        list(offset_ranges.stretches(0, wrong))


@pytest.mark.parametrize(
    ("size", "age", "topic", "way"),
    [
        (INLINE_BYTES, 0.0, None, "inline"),
        (INLINE_BYTES + 1, 0.0, KEPT, "range"),
        (None, 0.0, KEPT, "range"),
        (INLINE_BYTES + 1, 0.0, None, "capture"),
        (INLINE_BYTES + 1, 0.0, Topic(seconds=None), "range"),
        (INLINE_BYTES + 1, 0.0, Topic(seconds=None, compacted=True), "capture"),
        (INLINE_BYTES + 1, 0.0, Topic(seconds=None, bytes=10**9), "capture"),
        (INLINE_BYTES + 1, 0.0, Topic(seconds=NEEDED - 1), "capture"),
        (INLINE_BYTES + 1, 6.5 * 86_400, KEPT, "capture"),
    ],
)
def test_a_range_is_handed_over_only_while_the_topic_keeps_it(
    size: int | None, age: float, topic: Topic | None, way: str
) -> None:
    assert choose("auto", size, age, topic) == way


@pytest.mark.parametrize("way", ["inline", "range", "capture"])
def test_the_trigger_has_the_last_word(way: Literal["inline", "range", "capture"]) -> None:
    assert choose(way, 10**7, 10**7, None) == way


@pytest.mark.parametrize("value", [b'{"wei": 18446744073709551616}', b"[-9223372036854775809]"])
def test_what_inputs_do_not_take_goes_another_way(value: bytes, tmp_path: Path) -> None:
    wanted, made = batch({4: b"1", 5: value}, trigger()), payloads(Store.open(tmp_path.as_uri()))
    assert made.value(wanted, trigger())["kafka"]["runs"] == [2]
    with pytest.raises(UsageError, match="cannot be inline"):
        made.value(wanted, trigger(events="inline"))


WORDS = st.sampled_from(["", "a", "$", "{{", "${{", "x ${{ y }}"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=10,
)


@given(st.lists(JSON, min_size=1, max_size=3))
def test_values_are_plain_exactly_when_inputs_accept_them(items: list[Any]) -> None:
    try:
        msgspec.msgpack.encode(accept(Input(type="dataset"), {"items": items}))
    except (InputError, OverflowError):
        assert not is_plain(items)
    else:
        assert is_plain(items)


def test_settings_of_a_topic_say_how_long_it_keeps_records() -> None:
    week = {"retention.ms": "604800000", "retention.bytes": "-1", "cleanup.policy": "delete"}
    assert topic_of(week) == Topic(604_800.0)
    assert topic_of(week | {"retention.ms": "-1", "retention.bytes": "5"}) == Topic(None, 5)
    assert topic_of(week | {"cleanup.policy": "compact"}) == Topic(None, None, True)
    assert topic_of(week | {"cleanup.policy": "compact,delete"}) == Topic(604_800.0, None, True)
    assert topic_of({"cleanup.policy": "delete"}) is None


def test_small_batches_are_inline_with_or_without_their_envelope(tmp_path: Path) -> None:
    store = Store.open(tmp_path.as_uri())
    some = {4: b'{"a": 1}', 9: b"[2]"}
    assert payloads(store).value(batch(some, trigger()), trigger()) == [{"a": 1}, [2]]
    first, _ = payloads(store).value(batch(some, trigger()), trigger(envelope=True))
    assert (first["id"], first["source"], first["data"]) == ("2/4", "kafka://broker/orders", {"a": 1})


def test_a_range_names_its_offsets_and_nothing_secret(tmp_path: Path) -> None:
    value = payloads(Store.open(tmp_path.as_uri())).value(
        batch({4: b"1", 5: b"2", 9: b"3"}, trigger()), trigger(events="range")
    )
    assert value == {
        "kafka": {
            "connection": "broker",
            "topic": "orders",
            "topicId": "uuid",
            "partition": 2,
            "start": 4,
            "runs": [2, 3, 1],
            "size": 3,
            "format": "json",
            "envelope": False,
            "copied": "",
        }
    }
    (split,) = splits(value)
    assert split == EventSplit("broker", "orders", "uuid", 2, 4, (2, 3, 1), "json")
    assert list(tmp_path.rglob("*")) == []


def test_large_ranges_are_cut_by_records_and_by_bytes() -> None:
    about = {"connection": "c", "topic": "t", "topicId": "u", "partition": 0, "start": 0, "format": "raw"}
    many = splits({"kafka": {**about, "runs": [2 * EVENTS_EACH + 1]}})
    assert sum(sum(one.runs) for one in many) == 2 * EVENTS_EACH + 1
    assert len(many) == 3
    large = splits({"kafka": {**about, "runs": [10], "size": 4 * EVENT_BYTES_EACH}})
    assert [one.start for one in large] == [0, 3, 6, 8]
    assert len(splits({"kafka": {**about, "runs": [1], "size": 4 * EVENT_BYTES_EACH}})) == 1


@given(st.dictionaries(st.integers(0, 300), st.binary(max_size=20), min_size=1, max_size=60), st.booleans())
def test_a_copy_gives_what_inline_would(values: dict[int, bytes], envelope: bool) -> None:
    store = Store.open("memory://")
    given = trigger(format="raw", envelope=envelope, events="capture")
    wanted = batch(dict(sorted(values.items())), given)
    (split,) = splits(payloads(store).value(wanted, given))
    reader = EventReader(store, "run", sealing.run_key(KEY, "run"), {})
    found = [item for some in reader.read(split) for item in some]
    assert found == [msgspec.structs.asdict(one.event) if envelope else one.event.data for one in wanted.matched]


def test_owners_that_cut_different_batches_do_not_read_each_others_copies(tmp_path: Path) -> None:
    store = Store.open(tmp_path.as_uri())
    kafka = trigger(events="capture")
    short, long = ({0: b"1", 1: b"2"}, {0: b"1", 1: b"2", 2: b"3"})
    first = payloads(store).value(batch(short, kafka), kafka)
    second = payloads(store).value(batch(long, kafka), kafka)
    reader = EventReader(store, "run", sealing.run_key(KEY, "run"), {})
    assert [item for split in splits(first) for some in reader.read(split) for item in some] == [1, 2]
    assert [item for split in splits(second) for some in reader.read(split) for item in some] == [1, 2, 3]


def test_a_copy_that_was_changed_or_removed_is_refused(tmp_path: Path) -> None:
    store = Store.open(tmp_path.as_uri())
    kafka = trigger(events="capture")
    (split,) = splits(payloads(store).value(batch({0: b"1"}, kafka), kafka))
    reader = EventReader(store, "run", sealing.run_key(KEY, "run"), {})
    name = f"runs/run/{split.copied}"
    whole = store.get(name)
    store.put(name, whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(CorruptError):
        list(reader.read(split))
    store.delete([name])
    with pytest.raises(DataError, match="copy"):
        list(reader.read(split))


def test_a_topic_is_asked_about_once_a_minute(tmp_path: Path) -> None:
    clock, asked = [NOW], []

    def ask(name: str) -> Topic:
        asked.append(name)
        return KEPT

    made = Payloads(Store.open(tmp_path.as_uri()), KEY, ask, now=lambda: clock[0])
    large = batch({0: b'"' + b"x" * INLINE_BYTES + b'"'}, trigger())
    for seconds in (0.0, 59.0, 2.0):
        clock[0] += seconds
        assert "kafka" in made.value(large, trigger())
    assert asked == ["orders", "orders"]
