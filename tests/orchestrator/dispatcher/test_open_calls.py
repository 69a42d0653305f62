"""Which calls may begin: random programs of calls, ends and takeovers against their plain meaning."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.orchestrator.dispatcher.decisions.open_calls import (
    BeginCall,
    DropResult,
    ExpectCalls,
    FailCall,
    OpenCalls,
    OpenFunction,
    Step,
    TakeValue,
    WithdrawCall,
)
from treadle.orchestrator.run_store.call_log import (
    Called,
    CallIndex,
    CallPlace,
    CallRecord,
    Cancelled,
    FunctionAdded,
    Need,
    NoMoreCalls,
    ValueAdded,
    ValueReleased,
)
from treadle.primitives.encoding.references import BlockRef, Part
from treadle.primitives.errors import CorruptError


def block(name: str, parts: int = 1) -> BlockRef:
    return BlockRef(name, "objects", parts, tuple(Part(index, 1, 1, 0) for index in range(parts)), ("store",))


def called(key: str, function: str = "f", needs: tuple[tuple[Need, ...], ...] = (), parts: int = 1) -> Called:
    return Called(key, function, block(f"calls/{key}", parts), parts, 1, needs)


FUNCTION = FunctionAdded("f", "square", block("calls/f"))


def begun(steps: list[Step]) -> list[CallPlace]:
    return [step.place for step in steps if isinstance(step, BeginCall)]


@st.composite
def programs(draw: st.DrawFn) -> list[CallRecord]:
    """Calls of two functions; each needs any earlier results."""
    records: list[CallRecord] = [FUNCTION, FunctionAdded("g", "add", block("calls/g"))]
    results: list[Need] = []
    for number in range(draw(st.integers(1, 8))):
        parts = draw(st.integers(1, 3))
        some = st.lists(st.sampled_from(results), max_size=3, unique=True) if results else st.just([])
        needs = tuple(tuple(draw(some)) for _ in range(parts))
        key = f"c{number}"
        records.append(called(key, draw(st.sampled_from("fg")), needs, parts))
        results += [(key, partition) for partition in range(parts)]
    return records


def meaning(records: list[CallRecord], failing: set[CallPlace]) -> tuple[set[CallPlace], set[CallPlace]]:
    """(partitions that begin, partitions that fail) when each ends at once."""
    index, ends, failed = CallIndex(), set[CallPlace](), set[CallPlace]()
    for record in records:
        index.add(record)
        if not isinstance(record, Called):
            continue
        for partition in range(len(record.arguments.parts)):
            place = index.place(record.key, partition)
            needs = {index.place(*need) for need in record.needs[partition]}
            if not needs & failed:
                ends.add(place)
            if needs & failed or place in failing:
                failed.add(place)
    return ends, failed


@given(programs(), st.data())
def test_each_call_begins_once_after_its_needs_or_fails_with_one(records: list[CallRecord], data: Any) -> None:
    calls, left = OpenCalls(), list(records)
    places = _places(records)
    failing = set(data.draw(st.lists(st.sampled_from(places), unique=True)))
    running, ended, doomed = list[CallPlace](), set[CallPlace](), set[CallPlace]()
    began = set[CallPlace]()
    todo: list[Step] = []
    while left or running or todo:
        while todo:
            match todo.pop(0):
                case BeginCall(place, source):
                    assert place not in began
                    assert len(source.inputs[0]) == 1 + len(_needs(records, place))
                    assert _needs(records, place) <= ended - doomed
                    began.add(place)
                    running.append(place)
                case FailCall(place, needed):
                    assert needed in doomed
                    doomed.add(place)
                    ended.add(place)
                    todo += calls.ended(place, None)
        if left and (not running or data.draw(st.booleans())):
            todo += calls.add(left.pop(0))
        elif running:
            place = running.pop(data.draw(st.integers(0, len(running) - 1)))
            ended.add(place)
            if place in failing:
                doomed.add(place)
            todo += calls.ended(place, None if place in failing else block("made"))
    assert (began, doomed) == meaning(records, failing)
    assert calls.idle
    assert not calls.over
    calls.add(NoMoreCalls())
    assert calls.over


def _places(records: list[CallRecord]) -> list[CallPlace]:
    index = CallIndex()
    found = []
    for record in records:
        index.add(record)
        if isinstance(record, Called):
            found += [index.place(record.key, partition) for partition in range(len(record.arguments.parts))]
    return found


def _needs(records: list[CallRecord], place: CallPlace) -> set[CallPlace]:
    index = CallIndex()
    for record in records:
        index.add(record)
        if isinstance(record, Called) and place in index.places(record.key):
            return {index.place(*need) for need in record.needs[index.call_at(place)[1]]}
    raise AssertionError(place)


def test_call_of_parts_gets_its_part_of_each_result_and_nothing_else() -> None:
    calls = OpenCalls()
    for record in (FUNCTION, called("a", parts=2), Called("b", "f", block("calls/b", 3), 3, 1, parts_of="a")):
        calls.add(record)
    made = [block("first", 3), block("second", 3)]
    assert calls.ended(CallPlace("square-1", 1), made[1]) == []
    steps = calls.ended(CallPlace("square-1", 0), made[0])
    assert begun(steps) == [CallPlace("square-1", 2 + part) for part in range(3)]
    for part, step in enumerate(steps):
        assert isinstance(step, BeginCall)
        assert step.input.inputs == ((block("calls/b", 3).slice(part), made[0].slice(part), made[1].slice(part)),)


def test_call_of_parts_fails_with_one_of_the_calls_that_it_reads() -> None:
    calls = OpenCalls()
    for record in (FUNCTION, called("a", parts=2), Called("b", "f", block("calls/b", 2), 2, 1, parts_of="a")):
        calls.add(record)
    failed = CallPlace("square-1", 1)
    assert calls.ended(failed, None) == [FailCall(CallPlace("square-1", 2 + part), failed) for part in range(2)]


def test_inner_calls_are_found_at_any_depth() -> None:
    index = CallIndex()
    inner = Called("a", "f", block("calls/a"), 1, 1, gives="nothing")
    parts = Called("b", "f", block("calls/b"), 1, 1, parts_of="a", gives="nothing")
    for record in (FUNCTION, called("other"), inner, parts, called("c", needs=((("b", 0), ("other", 0)),))):
        index.add(record)
    assert list(index.with_inner("c")) == ["c", "b", "a"]


def test_function_opens_a_segment_before_its_first_call() -> None:
    calls = OpenCalls()
    assert calls.add(FUNCTION) == [OpenFunction("square-1", FUNCTION)]
    expected, begin = calls.add(called("a"))
    assert expected == ExpectCalls("square-1", 1)
    assert begun([begin]) == [CallPlace("square-1", 0)]


def test_record_that_is_read_twice_counts_once() -> None:
    calls = OpenCalls()
    calls.add(FUNCTION)
    calls.add(called("a"))
    assert calls.add(FUNCTION) == []
    assert calls.add(called("a")) == []
    assert calls.expected == 1


def test_call_after_the_end_is_ignored() -> None:
    calls = OpenCalls()
    calls.add(FUNCTION)
    calls.add(NoMoreCalls())
    assert calls.add(called("a")) == []
    assert calls.over


def test_call_of_an_unknown_function_is_refused() -> None:
    with pytest.raises(CorruptError, match="names a function that the session does not have"):
        OpenCalls().add(called("a"))


def test_cancelled_call_is_withdrawn_unless_it_is_over() -> None:
    calls = OpenCalls()
    for record in (FUNCTION, called("a"), called("b", needs=((("a", 0),),))):
        calls.add(record)
    assert calls.add(Cancelled("b", 0)) == [WithdrawCall(CallPlace("square-1", 1))]
    calls.ended(CallPlace("square-1", 1), None)
    assert begun(calls.ended(CallPlace("square-1", 0), block("made"))) == []
    assert calls.add(Cancelled("a", 0)) == []


def test_call_that_cannot_be_withdrawn_begins() -> None:
    calls = OpenCalls()
    for record in (FUNCTION, called("a"), called("b", needs=((("a", 0),),)), Cancelled("b", 0)):
        calls.add(record)
    assert begun(calls.ended(CallPlace("square-1", 0), block("made"))) == [CallPlace("square-1", 1)]


def test_call_on_another_machine_waits_until_the_store_has_its_arguments() -> None:
    calls = OpenCalls()
    calls.far.add("far-2")
    records: list[CallRecord] = [
        FUNCTION,
        FunctionAdded("g", "far", block("calls/g")),
        called("a"),
        ValueAdded("v", block("values/v"), "me"),
    ]
    needs: tuple[tuple[Need, ...], ...] = ((("a", 0), ("v", 0)),)
    for record in (*records, called("near", needs=needs), called("far", "g", needs)):
        calls.add(record)
    made, value = CallPlace("square-1", 0), CallPlace("values", 0)
    here = msgspec.structs.replace(block("made"), locations=("host:a",))
    calls.ended(made, here)
    assert begun(calls.ended(value, msgspec.structs.replace(block("values/v"), locations=("host:a",)))) == [
        CallPlace("square-1", 1)
    ]
    assert begun(calls.copied(made, block("made"))) == []
    assert begun(calls.ended(value, block("values/v"))) == [CallPlace("far-2", 0)]
    assert begun(calls.add(called("again", "g", needs))) == [CallPlace("far-2", 1)], "nothing is missing any more"


def test_inner_result_is_dropped_once_its_readers_have_ended() -> None:
    calls = OpenCalls()
    inner = Called("a", "f", block("calls/a", 2), 2, 1, gives="nothing")
    for record in (FUNCTION, inner, called("b", needs=((("a", 0),), (("a", 0), ("a", 1))), parts=2)):
        calls.add(record)
    first, second = block("first"), block("second")
    for partition, made in enumerate((first, second)):
        assert not dropped(calls.ended(CallPlace("square-1", partition), made))
    assert dropped(calls.ended(CallPlace("square-1", 3), block("made"))) == [second]
    assert dropped(calls.ended(CallPlace("square-1", 2), None)) == [first], "a failed reader is none any more"


def test_result_that_a_client_may_read_is_never_dropped() -> None:
    calls = OpenCalls()
    for record in (FUNCTION, called("a"), called("b", needs=((("a", 0),),))):
        calls.add(record)
    for partition in range(2):
        assert not dropped(calls.ended(CallPlace("square-1", partition), block("made")))


def test_value_is_dropped_once_no_client_holds_it_and_no_call_needs_it() -> None:
    calls, place = OpenCalls(), CallPlace("values", 0)
    value = ValueAdded("v", block("values/v"), "one")
    for record in (FUNCTION, value, ValueAdded("v", block("values/v"), "two")):
        for step in calls.add(record):
            assert not isinstance(step, TakeValue) or not calls.ended(place, step.value.block)
    assert begun(calls.add(called("a", needs=((("v", 0),),)))) == [CallPlace("square-1", 0)]
    assert not calls.add(ValueReleased("v", "one"))
    assert not dropped(calls.ended(CallPlace("square-1", 0), block("made")))
    assert dropped(calls.add(ValueReleased("v", "two"))) == [block("values/v")]
    assert not calls.needs(place)
    assert calls.idle
    assert not begun(calls.add(called("b", needs=((("v", 0),),)))), "the value is gone"
    assert calls.add(value) == [TakeValue(place, value)]
    assert begun(calls.ended(place, value.block)) == [CallPlace("square-1", 1)]


def test_call_fails_when_a_value_among_its_arguments_is_lost() -> None:
    calls, place = OpenCalls(), CallPlace("values", 0)
    for record in (FUNCTION, ValueAdded("v", block("values/v"), "one")):
        calls.add(record)
    calls.ended(place, None)
    assert FailCall(CallPlace("square-1", 0), place) in calls.add(called("a", needs=((("v", 0),),)))
    assert calls.failed == 0, "a value is no call"


def dropped(steps: list[Step]) -> list[BlockRef]:
    return [step.block for step in steps if isinstance(step, DropResult)]


def test_call_after_the_end_of_the_session_has_no_place() -> None:
    index = CallIndex()
    for record in (FUNCTION, called("a"), NoMoreCalls(), called("late")):
        index.add(record)
    assert index.size("square-1") == 1
    assert "late" not in index.first
