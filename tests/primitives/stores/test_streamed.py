"""Objects created in parts: several creators in any order create exactly one object."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.primitives.stores.atomic_files import Buffer
from treadle.primitives.stores.multipart import create_in_parts
from treadle.primitives.stores.store import ObjectStore, Store
from treadle.primitives.testing.s3 import S3Endpoint

T = TypeVar("T")
NAME = "out/part-00000.csv"


@pytest.fixture(params=["memory", "s3"])
def store(request: pytest.FixtureRequest) -> Store:
    if request.param == "memory":
        return Store.open(f"memory://{uuid.uuid4()}")
    s3: S3Endpoint = request.getfixturevalue("s3")
    return Store.open(f"s3://treadle/{uuid.uuid4()}", **s3.options)


def names(store: Store) -> list[str]:
    return [info.name for info in store.list()]


def test_parts_make_one_object_and_leave_nothing_beside_it(store: Store) -> None:
    parts = [bytes([number]) * (5 << 20) for number in range(4)]
    assert store.create(NAME, iter(parts))
    assert store.get(NAME) == b"".join(parts)
    assert not store.create(NAME, iter([b"other"]))
    assert store.get(NAME) == b"".join(parts)
    assert names(store) == [NAME]


def test_parts_are_taken_as_they_are_made(store: Store) -> None:
    """A creator that fails midway has created nothing."""

    def failing() -> Iterator[bytes]:
        yield b"x" * (9 << 20)
        raise KeyError("no more")

    with pytest.raises(Exception, match="no more"):
        store.create(NAME, failing())
    assert names(store) == []
    assert store.create(NAME, iter([b"again"]))


def test_of_a_small_and_a_large_creator_the_first_counts(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """This also holds if the small one comes when only the name of the large one is missing."""
    assert isinstance(store, ObjectStore)
    known = store.copy

    def late(source: str, name: str) -> bool:
        assert store.create(name, b"small")
        return known(source, name)

    monkeypatch.setattr(store, "copy", late)
    assert not store.create(NAME, iter([bytes(5 << 20), b"large"]))
    assert store.get(NAME) == b"small"
    assert names(store) == [NAME]


# -- all orders --------------------------------------------------------------------------------------------------------


class Died(Exception):
    pass


class Creator:
    """A creator in a thread. It makes one request to the store for each `step`, and dies after a number of them, if
    given."""

    def __init__(self, objects: dict[str, bytes], data: bytes, steps: int | None) -> None:
        self._objects, self._left = objects, steps
        self.data = data
        self.created: bool | None = None
        self.over = False
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        threading.Thread(target=self._run, daemon=True).start()
        self._stopped.acquire()

    def _run(self) -> None:
        try:
            small = self.data[:1] == b"s"
            self.created = self.create() if small else create_in_parts(self, NAME, iter([self.data]))
        except Died:
            pass
        finally:
            self.over = True
            self._stopped.release()

    def step(self) -> None:
        if not self.over:
            self._go.release()
            self._stopped.acquire()

    def _turn(self, work: Callable[[], T]) -> T:
        self._stopped.release()
        self._go.acquire()
        if self._left is not None:
            if not self._left:
                raise Died
            self._left -= 1
        return work()

    def create(self) -> bool:
        """Create the object in one request."""
        return self._turn(lambda: self._objects.setdefault(NAME, self.data) is self.data)

    def put(self, name: str, data: Iterator[Buffer]) -> None:
        self._turn(lambda: self._objects.update({name: b"".join(data)}))

    def copy(self, source: str, name: str) -> bool:
        return self._turn(lambda: self._objects.setdefault(name, self._objects[source]) is self._objects[source])

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            self._turn(lambda name=name: self._objects.pop(name, None))  # type: ignore[misc]


@settings(max_examples=100, deadline=None)
@given(
    lives=st.lists(st.tuples(st.sampled_from("sl"), st.none() | st.integers(0, 4)), min_size=2, max_size=4),
    order=st.lists(st.integers(0, 3), max_size=40),
)
def test_object_belongs_to_its_creator_in_any_order_and_after_any_death(
    lives: list[tuple[str, int | None]], order: list[int]
) -> None:
    objects: dict[str, bytes] = {}
    creators = [Creator(objects, f"{size}{number}".encode(), steps) for number, (size, steps) in enumerate(lives)]
    creators.append(Creator(objects, b"last", None))
    for number in order:
        creators[number % len(creators)].step()
    for _ in range(10):
        for creator in creators:
            creator.step()
    assert all(creator.over for creator in creators)
    told = [creator for creator in creators if creator.created]
    assert [creator.data for creator in told] in ([], [objects[NAME]])
    assert objects[NAME] in [creator.data for creator in creators]
    left = [name for name in objects if name != NAME]
    assert len(left) <= sum(steps is not None for _, steps in lives)
