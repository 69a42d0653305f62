"""Calls that are recorded during an attempt and run later."""

from __future__ import annotations

import inspect
import operator
from typing import Any

import pytest

from treadle.primitives.errors import UsageError
from treadle.primitives.objects import Counter, List, Map, Number, Set, catalog, effects, merges, shared, then
from treadle.primitives.objects.definitions import method_of
from treadle.primitives.objects.effects import Effects, StageObject, StageObjects, new_state, value_of, with_effects


def merged(cls: type, *calls: tuple[Any, ...], **keywords: Any) -> Any:
    """The value of an object after the calls."""
    state, made = new_state(cls, keywords), Effects()
    seen = StageObject("x", lambda: cls(**keywords), made)
    for name, *arguments in calls:
        assert getattr(seen, name)(*arguments) is None
    return value_of("x", with_effects(state, "x", made.calls))


def test_calls_run_in_order() -> None:
    assert merged(Counter, ("increment", 2), ("decrement",), value=7) == 8
    assert merged(List, ("append", 1), ("extend", [2, 3])) == [1, 2, 3]
    assert merged(Set, ("add", 3), ("update", [1, "b"]), ("discard", 3)) == [1, "b"]
    assert merged(Map, ("put", "a", 1), ("merge", "a", 2, operator.sub), ("put_if_absent", "b", 0)) == {"a": -1, "b": 0}
    assert merged(Number, ("update", lambda x, y: x * y, 3), ("add", 1), value=2) == 7


def test_equal_calls_in_a_row_are_one_record() -> None:
    made = Effects()
    counter = StageObject("x", Counter, made)
    for _ in range(1000):
        counter.increment()
    mark = made.mark()
    counter.increment()
    assert [effect.times for effect in made.calls] == [1001]
    made.back_to(mark)
    assert [effect.times for effect in made.calls] == [1000]
    counter.increment(amount=1)
    counter.increment()
    assert [effect.times for effect in made.calls] == [1000, 1, 1]


def test_recorded_argument_is_as_it_was_at_the_call() -> None:
    made, item = Effects(), [1]
    log = StageObject("x", List, made)
    log.append(item)
    log.append(item)
    item.append(2)
    state = with_effects(new_state(List, {}), "x", made.calls)
    first, second = value_of("x", state)
    assert (first, second) == ([1], [1])
    assert first is not second


def test_calls_beyond_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "EFFECTS_LIMIT", 100)
    log = StageObject("x", List, Effects())
    with pytest.raises(UsageError, match="Merge in the function first"):
        log.append("x" * 100)


def test_object_gives_only_methods_that_read_or_merge() -> None:
    seen = StageObjects({"x": StageObject("x", Counter, None)})
    assert seen.x.get() == 0
    with pytest.raises(UsageError, match="only reads"):
        seen.x.increment()
    with pytest.raises(UsageError, match="gives an answer"):
        seen.x.reset()
    for name in ("_value", "value", "missing"):
        with pytest.raises(AttributeError):
            getattr(seen.x, name)
    assert not hasattr(seen, "y")


@shared
class Waiting:
    @merges
    def wait(self) -> Any:
        return then("go")

    def go(self) -> None: ...


def test_class_without_a_value_and_method_that_waits_are_refused() -> None:
    with pytest.raises(UsageError, match="_value"):
        value_of("x", new_state(Waiting, {}))
    with pytest.raises(UsageError, match="waits"):
        merged(Waiting, ("wait",))


def test_no_method_of_the_library_that_merges_waits_or_reads() -> None:
    for cls in (getattr(catalog, name) for name in catalog.__all__):
        for name, _ in inspect.getmembers(cls, callable):
            method = method_of(cls, name)
            assert method is None or not (method.merges and (method.reads or method.guard)), (cls, name)
