"""A function whose parts are the same objects has the same pickle, so it is not pickled again."""

from __future__ import annotations

import math
import sys
import types
from collections.abc import Callable
from functools import partial
from typing import Any

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.client.function_parts import same_parts, unchanging_parts
from treadle.primitives.encoding.by_value import pack

SOURCE = """
import math

RATE, TEXT, PAIR, LIST = 300.5, "text", (1, ("a",)), [1]

def helper(x):
    return math.sqrt(x) * RATE

def leaf(x):
    return x

def user(x, k=2, *, far=None):
    return [helper(one) for one in range(x)] + [k, far]

def nested(x):
    def inner():
        return TEXT
    return inner() + x

def counts(x):
    return LIST + [x]

def recursive(x):
    return recursive(x - 1) if x else PAIR

def closing(value):
    def closure(x):
        return value + x
    return closure

closure = closing(500)
"""
UNCHANGING = "helper", "leaf", "user", "nested", "recursive", "closure"


def module() -> Any:
    found = types.ModuleType("__main__")
    exec(SOURCE, found.__dict__)
    return found


def changed(function: Callable[..., Any], change: Callable[[], object]) -> bool:
    before = unchanging_parts(function)
    change()
    return not same_parts(before, unchanging_parts(function))


@pytest.mark.parametrize("name", UNCHANGING)
def test_untouched_function_has_the_same_parts(name: str) -> None:
    function = getattr(module(), name)
    assert not changed(function, lambda: None)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: setattr(m, "RATE", 300.25),
        lambda m: setattr(m, "helper", m.leaf),
        lambda m: setattr(m, "math", types),
        lambda m: setattr(m.helper, "__code__", m.leaf.__code__),
        lambda m: setattr(m.helper, "__defaults__", (1,)),
        lambda m: setattr(m.user, "__defaults__", (3,)),
        lambda m: m.user.__kwdefaults__.update(far=1),
        lambda m: setattr(m.user, "note", 1),
        lambda m: setattr(m.user, "__doc__", "text"),
        lambda m: m.user.__annotations__.update(x=int),
        lambda m: m.__dict__.pop("RATE"),
    ],
)
def test_change_of_a_function_or_of_a_value_that_it_uses_is_seen(change: Callable[[Any], object]) -> None:
    found = module()
    assert changed(found.user, lambda: change(found))


def test_change_of_a_global_of_an_inner_function_is_seen() -> None:
    found = module()
    assert changed(found.nested, lambda: setattr(found, "TEXT", "other"))


def test_change_of_a_captured_variable_is_seen() -> None:
    found = module()
    assert changed(found.closure, lambda: setattr(found.closure.__closure__[0], "cell_contents", 501))
    del found.closure.__closure__[0].cell_contents
    assert unchanging_parts(found.closure) == ()  # it may be assigned later


def test_import_of_a_module_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert changed(module().helper, lambda: monkeypatch.setitem(sys.modules, "new_module", types.ModuleType("new")))


def test_function_that_uses_an_object_which_may_change_is_always_pickled() -> None:
    found = module()
    assert unchanging_parts(found.counts) == ()
    assert unchanging_parts([].append) == ()
    assert unchanging_parts(found) == ()
    assert unchanging_parts(partial(found.leaf, [])) == ()
    assert not same_parts((), ())


def test_module_that_travels_by_value_may_change() -> None:
    found = module()
    assert unchanging_parts(found.helper)
    cloudpickle.register_pickle_by_value(math)
    try:
        assert unchanging_parts(found.helper) == ()
    finally:
        cloudpickle.unregister_pickle_by_value(math)


def test_module_is_not_asked_for_members_that_it_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise ImportError(name)

    lazy = types.ModuleType("lazy_module")
    lazy.__dict__["__getattr__"] = refuse
    monkeypatch.setitem(sys.modules, "lazy_module", lazy)
    function = module().leaf
    function.__module__ = "lazy_module"
    assert not changed(function, lambda: None)


@given(st.lists(st.tuples(st.sampled_from(["RATE", "TEXT", "PAIR"]), st.integers(0, 2)), max_size=6))
def test_functions_with_the_same_parts_have_equal_pickles(changes: list[tuple[str, int]]) -> None:
    found, values = module(), (300, "text", (1, 2))
    before = {name: (unchanging_parts(getattr(found, name)), pack(getattr(found, name))) for name in UNCHANGING}
    for name, number in changes:
        setattr(found, name, values[number])
    for name, (parts, packed) in before.items():
        function = getattr(found, name)
        assert not same_parts(parts, unchanging_parts(function)) or pack(function) == packed
