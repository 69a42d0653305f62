from __future__ import annotations

import collections.abc
import functools
import hashlib
import sys
import threading
import typing
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from treadle.primitives.errors import UsageError
from treadle.primitives.functions import TASK_ATTRIBUTE, capture, describe, load, matches_type, reference

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Unknown = Any


# -- descriptions --------------------------------------------------------------------------------------------------


def unannotated(record, factor=2):  # type: ignore[no-untyped-def]
    return record * factor


def split(line: str, *, separator: str, context: object = None, limit: int = -1, **rest: object) -> Iterator[str]:
    yield from line.split(separator, limit)


def to_iterable(line: str) -> Iterable[str]:
    return line


def to_generator(line: str) -> Generator[str, None, None]:
    yield line


def to_abc(line: str) -> collections.abc.Iterator[str]:
    return iter(line)


def to_typing(line: str) -> typing.Iterable[str]:
    return line


def to_unresolvable(line: str) -> Iterator[Unknown]:
    return iter(line)


def to_list(line: str) -> list[str]:
    return [line]


def to_none(line: str) -> None:
    return None


def to_any(line: str) -> Any:
    return line


def to_str(line: Unknown) -> str:
    return str(line)


def first_bytes(rows: NDArray[np.uint8], width: int = 10) -> np.ndarray[Any, Any]:
    return rows[:, :width]


def returns_array(rows: Unknown) -> np.ndarray[Any, Any]:
    return np.asarray(rows)


@functools.lru_cache
def decorated(line: str, end: str = "") -> Iterator[str]:
    return iter(line)


class Doubler:
    def __call__(self, record: int, by: int = 2) -> Iterator[int]:
        yield record * by

    def method(self, record: int) -> int:
        return record

    @staticmethod
    def fixed(record: int) -> int:
        return record


@pytest.mark.parametrize(
    ("function", "flat"),
    [
        (split, True),
        (to_iterable, True),
        (to_generator, True),
        (to_abc, True),
        (to_typing, True),
        (to_unresolvable, True),
        (decorated, True),
        (functools.partial(split, separator=","), True),
        (Doubler(), True),
        (to_list, False),
        (to_none, False),
        (to_str, False),
        (Doubler().method, False),
        (Doubler.fixed, False),
        (Doubler, False),
        (to_any, None),
        (unannotated, None),
        (len, None),
        (lambda record: [record], None),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__ if callable(value) else str(value)),
)
def test_flat_is_read_from_the_return_annotation(function: Callable[..., Any], flat: bool | None) -> None:
    assert describe(function).flat is flat


def test_context_is_passed_to_functions_that_ask_for_it() -> None:
    assert describe(split).takes_context
    assert describe(functools.partial(split, separator=",")).takes_context
    assert not any(describe(one).takes_context for one in (unannotated, Doubler(), Doubler().method, len))


def test_a_generator_is_known_as_one() -> None:
    assert describe(split).is_generator
    assert not describe(unannotated).is_generator


def test_alias_of_an_array_type_makes_a_key_function_vectorized() -> None:
    """Like `NDArray` in NumPy 2.5: an object with `__value__`, which may have parameters."""
    from numpy.typing import NDArray

    def key(rows: Any) -> Any:
        return rows

    key.__annotations__ = {"rows": NDArray[np.int64], "return": Alias(Alias(NDArray[np.int64]))}
    assert describe(key).vectorized
    key.__annotations__ = {"rows": Alias(list[int]), "return": int}
    assert not describe(key).vectorized


@dataclass(frozen=True)
class Alias:
    """A replacement for the object of a `type` statement, which Python 3.11 lacks."""

    __value__: Any


@pytest.mark.parametrize(
    ("function", "vectorized"),
    [(first_bytes, True), (returns_array, True), (to_str, False), (unannotated, False), (split, False)],
)
def test_array_annotations_make_a_key_function_vectorized(function: Callable[..., Any], vectorized: bool) -> None:
    assert describe(function).vectorized is vectorized


def test_task_settings_are_reported_and_decide() -> None:
    def key(record: Any) -> Any:
        return record

    settings = {"vectorized": True, "retry": {"maximumAttempts": 5}}
    setattr(key, TASK_ATTRIBUTE, settings)
    assert describe(key).vectorized
    assert describe(key).settings == settings

    def not_vectorized(rows: NDArray[Any]) -> int:
        return 1

    setattr(not_vectorized, TASK_ATTRIBUTE, {"vectorized": False})
    assert not describe(not_vectorized).vectorized


def test_flat_setting_of_a_task_decides_over_the_annotation() -> None:
    def lines(text: str) -> list[str]:
        return text.split()

    setattr(lines, TASK_ATTRIBUTE, {"flat": True})
    assert describe(lines).flat is True


# -- references ----------------------------------------------------------------------------------------------------


def test_importable_function_goes_by_name() -> None:
    assert reference(describe) == "treadle.primitives.functions:describe"
    assert reference(ThreadPoolExecutor.shutdown) == "concurrent.futures.thread:ThreadPoolExecutor.shutdown"
    assert load("concurrent.futures.thread:ThreadPoolExecutor.shutdown") is ThreadPoolExecutor.shutdown


def test_function_without_a_name_of_its_own_goes_by_value() -> None:
    step = 3
    add: Callable[[int], int] = lambda x: x + step  # noqa: E731
    ref = reference(add)
    assert ref == "captured:" + hashlib.sha256(capture(add)).hexdigest()[:32]
    assert load(ref, {ref: capture(add)})(4) == 7


def test_shadowed_function_does_not_go_by_a_name_that_means_another() -> None:
    def describe() -> None: ...

    describe.__module__, describe.__qualname__ = "treadle.primitives.functions", "describe"
    assert reference(describe).startswith("captured:")


def test_function_that_cannot_be_pickled_is_refused_with_what_to_do() -> None:
    lock = threading.Lock()
    with pytest.raises(UsageError, match="cannot be taken by value") as error:
        capture(lambda: lock)
    assert "with" in error.value.hint


def test_captured_bytes_of_another_function_are_not_loaded() -> None:
    data = capture(lambda: 1)
    with pytest.raises(UsageError, match="another function"):
        load("captured:" + "0" * 32, {"captured:" + "0" * 32: data})


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "treadle_broken.py").write_text("import treadle_absent_dependency\n")
    (tmp_path / "treadle_raising.py").write_text("raise RuntimeError('no licence')\n")
    (tmp_path / "treadle_sound.py").write_text(
        "def tokenize(line): ...\nLIMIT = 3\nclass Text:\n    def clean(self): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize(
    ("ref", "message"),
    [
        ("treadle_nowhere:f", "no module 'treadle_nowhere'"),
        ("treadle_nowhere.sub:f", "no module 'treadle_nowhere'"),
        ("treadle_sound.sub:f", "no module 'treadle_sound.sub'"),
        ("treadle_broken:f", "'treadle_broken' failed on import: ModuleNotFoundError.*treadle_absent_dependency"),
        ("treadle_raising:f", "'treadle_raising' failed on import: RuntimeError: no licence"),
        ("treadle_sound:tokenise", "(?s)'treadle_sound' has no 'tokenise'.*Did you mean tokenize?"),
        ("treadle_sound:Text.claen", "(?s)'Text' has no 'claen'.*Did you mean clean?"),
        ("treadle_sound:zzz", "(?s)has no 'zzz'.*Check the spelling"),
        ("treadle_sound:LIMIT", "of type int, not a function"),
        ("treadle_sound", "does not name a function"),
        (":f", "does not name a function"),
        ("captured:00", "the bundle has no captured:00"),
    ],
)
@pytest.mark.usefixtures("broken")
def test_reference_that_leads_nowhere_says_why(ref: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as error:
        load(ref)
    assert error.value.hint
    for name in [name for name in sys.modules if name.startswith("treadle_")]:
        del sys.modules[name]


# -- errors --------------------------------------------------------------------------------------------------------


class SchemaError(ValueError):
    pass


class ColumnError(SchemaError):
    class Inner(Exception):
        pass


@pytest.mark.parametrize(
    ("names", "matches"),
    [
        (["SchemaError"], True),
        (["ColumnError"], True),
        (["ValueError"], True),
        (["builtins.ValueError"], True),
        ([f"{__name__}.SchemaError"], True),
        (["other.SchemaError"], False),
        (["KeyError", "Schema"], False),
        ([], False),
    ],
)
def test_error_matches_its_class_and_bases_by_name(names: list[str], matches: bool) -> None:
    assert matches_type(ColumnError("x"), names) is matches


def test_nested_error_class_matches_by_its_last_name_and_in_full() -> None:
    assert matches_type(ColumnError.Inner(), ["Inner"])
    assert matches_type(ColumnError.Inner(), [f"{__name__}.ColumnError.Inner"])
