"""The ledger as a whole: one order, fenced writers, no loss of flushed records."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from hypothesis import note, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from treadle.executors.program import Outcome
from treadle.orchestrator.dispatcher.ledger import ledger as ledger_module
from treadle.orchestrator.dispatcher.ledger.ledger import Committed, Epoch, Fenced, Ledger, Started, read, read_from
from treadle.orchestrator.dispatcher.ledger.ledger_state import replay
from treadle.primitives.errors import CorruptError, StoreError
from treadle.primitives.stores import request_counts
from treadle.primitives.stores.store import ObjectInfo, Store

KEY = b"k" * 32
_numbers = itertools.count()


def new_store() -> Store:
    return Store.open(f"memory://ledger-{next(_numbers)}")


def commit(partition: int, attempt: int = 1) -> Committed:
    return Committed("s", Outcome(partition, attempt, "objects", 1))


def partitions(records: list[Any]) -> list[int]:
    return [record.outcome.partition for record in records if isinstance(record, Committed)]


def test_flushed_records_are_there_for_the_next_writer() -> None:
    store = new_store()
    first = Ledger(store, "p", KEY)
    first.append(commit(0), commit(1))
    first.flush()
    second = Ledger(store, "p", KEY)
    assert partitions(second.records) == [0, 1]
    assert (first.epoch, second.epoch) == (1, 2)


def test_ledger_that_was_wrongly_taken_as_new_commits_nothing() -> None:
    store = new_store()
    first = Ledger(store, "p", KEY, is_new=True)
    first.append(commit(0), commit(1))
    first.flush()
    second = Ledger(store, "p", KEY, is_new=True)
    second.append(commit(2))
    with pytest.raises(Fenced):
        second.flush()
    third = Ledger(store, "p", KEY)
    assert partitions(third.records) == [0, 1]
    assert third.epoch == 2


def test_driver_that_dies_before_its_first_write_leaves_no_epoch_and_no_name() -> None:
    """Names of tasks contain both, so the next driver has others."""
    store = new_store()
    dead, next_one = (Ledger(store, "p", KEY, is_new=True) for _ in range(2))
    assert dead.epoch == next_one.epoch == 1
    assert dead.writer != next_one.writer


def test_first_records_of_a_new_ledger_take_one_request() -> None:
    store, before = new_store(), request_counts.made()
    ledger = Ledger(store, "p", KEY, is_new=True)
    ledger.append(commit(0))
    ledger.flush()
    assert request_counts.since(before) == {"put": 1}
    assert [type(record) for record in read(store, "p", KEY)] == [Epoch, Committed]


def test_reader_of_a_ledger_reads_only_new_records() -> None:
    store = new_store()
    ledger = Ledger(store, "p", KEY)
    ledger.append(commit(0))
    ledger.flush()
    records, number = read_from(store, "p", KEY, 0)
    assert partitions(records) == [0]
    assert read_from(store, "p", KEY, number) == ([], number)
    ledger.append(commit(1), commit(2))
    ledger.flush()
    assert read_from(store, "p", KEY, number) == ([commit(1), commit(2)], number + 1)


def test_the_chain_has_no_gaps() -> None:
    store = new_store()
    for _ in range(2):
        ledger = Ledger(store, "p", KEY)
        for partition in range(3):
            ledger.append(commit(partition))
            ledger.flush()
    assert [info.name for info in store.list("p/ledger/")] == [f"p/ledger/{number:08d}" for number in range(8)]


def test_unflushed_records_do_not_count() -> None:
    store = new_store()
    first = Ledger(store, "p", KEY)
    first.append(commit(0))
    assert partitions(Ledger(store, "p", KEY).records) == []


def test_a_stalled_writer_is_fenced_and_its_commits_never_appear() -> None:
    store = new_store()
    stalled = Ledger(store, "p", KEY)
    newer = Ledger(store, "p", KEY)
    stalled.append(commit(0, attempt=1))
    with pytest.raises(Fenced, match="epoch 2 has taken over"):
        stalled.flush()
    newer.append(commit(0, attempt=2))
    newer.flush()
    assert [r.outcome.attempt for r in read(store, "p", KEY) if isinstance(r, Committed)] == [2]


def test_a_fenced_writer_stays_fenced() -> None:
    store = new_store()
    stalled = Ledger(store, "p", KEY)
    Ledger(store, "p", KEY)
    for _ in range(2):
        stalled.append(commit(0))
        with pytest.raises(Fenced):
            stalled.flush()


def test_an_entry_whose_answer_got_lost_is_not_written_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    store = new_store()
    ledger = Ledger(store, "p", KEY)
    create = store.create

    def lossy(name: str, data: Any) -> bool:
        create(name, data)
        raise StoreError("connection reset", "try again", retryable=True)

    monkeypatch.setattr(store, "create", lossy)
    ledger.append(commit(0))
    with pytest.raises(StoreError):
        ledger.flush()
    monkeypatch.undo()
    ledger.append(commit(1))
    ledger.flush()
    assert partitions(read(store, "p", KEY)) == [0, 1]


def test_a_forged_entry_is_refused_before_it_is_decoded() -> None:
    store = new_store()
    Ledger(store, "p", KEY)
    store.create("p/ledger/00000001", b"\x93\x01\xa1x\x90")
    with pytest.raises(CorruptError):
        Ledger(store, "p", KEY)


def test_an_entry_moved_to_another_place_is_refused() -> None:
    store = new_store()
    ledger = Ledger(store, "p", KEY)
    ledger.append(commit(0))
    ledger.flush()
    store.create("p/ledger/00000002", store.get("p/ledger/00000001"))
    with pytest.raises(CorruptError):
        read(store, "p", KEY)


def test_attempts_a_dead_driver_left_open_are_counted() -> None:
    store = new_store()
    first = Ledger(store, "p", KEY)
    first.append(Started("s", {0: 1, 1: 1}), commit(1))
    first.flush()
    history = replay(Ledger(store, "p", KEY).records, "s")
    assert (history.crashes, history.cut_off, history.starts) == ({0: 1}, {0}, {0: 1, 1: 1})


def test_a_persons_resume_gives_a_fresh_budget() -> None:
    store = new_store()
    first = Ledger(store, "p", KEY)
    first.append(Started("s", {0: 1}), ledger_module.Failed("s", 0, 1, "user error", "no", final=True, spent=True))
    first.flush()
    assert replay(Ledger(store, "p", KEY).records, "s").spent == {0: 1}
    history = replay(Ledger(store, "p", KEY, resumption=2).records, "s")
    assert history.spent == {}
    assert history.starts == {0: 1}


class TwoWriters(RuleBasedStateMachine):
    """Writers come and go, stall and wake. The flushed records are the model."""

    writers = Bundle("writers")

    def __init__(self) -> None:
        super().__init__()
        self.store = new_store()
        self.owner = 0
        self.model: list[int] = []
        self.unflushed: dict[int, list[int]] = {}
        self.next = itertools.count()

    @rule(target=writers)
    def take_over(self) -> Ledger:
        ledger = Ledger(self.store, "p", KEY)
        assert partitions(ledger.records) == self.model
        self.owner = id(ledger)
        self.unflushed[id(ledger)] = []
        return ledger

    @rule(target=writers)
    def take_as_new(self) -> Ledger:
        """Its first write takes the chain over, or finds that it is not new."""
        ledger = Ledger(self.store, "p", KEY, is_new=True)
        self.unflushed[id(ledger)] = []
        return ledger

    @rule(writer=writers, count=st.integers(1, 3))
    def append(self, writer: Ledger, count: int) -> None:
        for partition in itertools.islice(self.next, count):
            writer.append(commit(partition))
            self.unflushed[id(writer)].append(partition)

    @rule(writer=writers)
    def flush(self, writer: Ledger) -> None:
        note(f"{id(writer)} of epoch {writer.epoch} flushes {self.unflushed[id(writer)]}; {self.owner} owns the chain")
        if not self.owner or self.owner == id(writer) or not writer.dirty:
            self.owner = id(writer) if writer.dirty else self.owner
            writer.flush()
            self.model += self.unflushed[id(writer)]
            self.unflushed[id(writer)] = []
        else:
            with pytest.raises(Fenced):
                writer.flush()

    @rule(writer=consumes(writers))
    def die(self, writer: Ledger) -> None:
        self.unflushed.pop(id(writer))
        self.owner = -1 if self.owner == id(writer) else self.owner

    @invariant()
    def the_chain_holds_exactly_what_flushes_returned_from(self) -> None:
        records = read(self.store, "p", KEY)
        assert partitions(records) == self.model
        epochs = [record.epoch for record in records if isinstance(record, Epoch)]
        assert epochs == list(range(1, len(epochs) + 1))


TestTwoWriters = TwoWriters.TestCase
TestTwoWriters.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def test_a_failed_write_after_a_lost_answer_writes_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    store = new_store()
    ledger = Ledger(store, "p", KEY)
    create = store.create
    calls = itertools.count()

    def lossy(name: str, data: Any) -> bool:
        call = next(calls)
        if call in (0, 2):  # the answer of the first write is lost, then the second write fails
            if call == 0:
                create(name, data)
            raise StoreError("connection reset", "try again", retryable=True)
        return create(name, data)

    monkeypatch.setattr(store, "create", lossy)
    ledger.append(commit(0))
    with pytest.raises(StoreError):
        ledger.flush()
    ledger.append(commit(1))
    with pytest.raises(StoreError):
        ledger.flush()
    ledger.flush()
    assert partitions(read(store, "p", KEY)) == [0, 1]


def test_later_of_two_concurrent_successors_knows_the_records_of_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = new_store()
    create, rivals = store.create, list[Ledger]()

    def crossed(name: str, data: Any) -> bool:
        monkeypatch.undo()
        rivals.append(Ledger(store, "p", KEY))
        rivals[0].append(commit(0))
        rivals[0].flush()
        return create(name, data)

    monkeypatch.setattr(store, "create", crossed)
    later = Ledger(store, "p", KEY)
    assert (rivals[0].epoch, later.epoch) == (1, 2)
    assert partitions(later.records) == [0]
    later.append(commit(1))
    later.flush()
    rivals[0].append(commit(2))
    with pytest.raises(Fenced, match="epoch 2 has taken over"):
        rivals[0].flush()
    records = read(store, "p", KEY)
    assert partitions(records) == [0, 1]
    assert [one.resumption for one in records if isinstance(one, Epoch)] == [1, 1]


def test_successor_finds_all_records_when_the_listing_has_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder listed during writes may show a file, and miss one that was made earlier."""
    store = new_store()
    earlier = Ledger(store, "p", KEY)
    for partition in range(3):
        earlier.append(commit(partition))
        earlier.flush()
    found = store.list

    def with_a_gap(prefix: str) -> Iterator[ObjectInfo]:
        monkeypatch.undo()
        return (info for info in found(prefix) if not info.name.endswith("2"))

    monkeypatch.setattr(store, "list", with_a_gap)
    assert partitions(Ledger(store, "p", KEY).records) == [0, 1, 2]
    monkeypatch.setattr(store, "list", with_a_gap)
    records, number = read_from(store, "p", KEY, 1)
    assert partitions(records + read_from(store, "p", KEY, number)[0]) == [0, 1, 2]


def test_buffered_records_are_known_until_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    store = new_store()
    ledger = Ledger(store, "p", KEY)
    dirty = [ledger.dirty]
    ledger.flush()
    assert len(read_from(store, "p", KEY, 0)[0]) == 1, "nothing is written for nothing"
    ledger.append(commit(0), commit(1))
    dirty.append(ledger.dirty)

    def down(name: str, data: Any) -> bool:
        raise StoreError("no route", "try again", retryable=True)

    monkeypatch.setattr(store, "create", down)
    with pytest.raises(StoreError):
        ledger.flush()
    dirty.append(ledger.dirty)
    monkeypatch.undo()
    ledger.append(commit(2))
    ledger.flush()
    assert [*dirty, ledger.dirty] == [False, True, True, False]
    records, number = read_from(store, "p", KEY, 1)
    assert (partitions(records), number) == ([0, 1, 2], 2), "in one object, in their order"


def test_records_keep_the_names_under_which_earlier_versions_wrote_them() -> None:
    names = [kind.__struct_config__.tag for kind in get_args(ledger_module.Record)]
    first = ["epoch", "expected", "started", "committed", "copied", "failed", "lost"]
    assert names == [*first, "gang checkpoint", "closed", "iterated"]
