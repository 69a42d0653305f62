"""The status of a trigger's loop, and the state that it leaves behind."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from triggers.world import TOPIC, Owner, World

from treadle.primitives.errors import DataError, StoreError
from treadle.primitives.events import Record
from treadle.triggers.kafka.loop import JUDGING
from treadle.triggers.kafka.machine_events import Judged, KafkaPartition
from treadle.triggers.kafka.matching import Lineage

TRIGGER = {"type": "kafka", "connection": "c", "topics": [TOPIC], "format": "json", "startFrom": "earliest"}


def world() -> tuple[World, Owner]:
    """A world with an owner that has its partition."""
    made = World(TRIGGER, 1, None)
    owner = Owner(made, 1)
    made.owners.append(owner)
    made.assign(0, owner, silently=False)
    owner.step()
    return made, owner


def test_reason_to_wait_is_shown_until_records_are_judged() -> None:
    here, owner = world()
    here.produce(0, b"1")
    here.deploy({"filter": "event.data > 0"})
    for _ in range(3):
        owner.step()
        assert "not known yet from where on it decides" in owner.loop.error
        assert owner.starts == []
    here.settle()
    here.now += 60.0
    owner.step()
    assert owner.loop.error == ""
    assert len(owner.starts) == 1


def test_records_that_cannot_be_judged_are_kept_and_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    here, owner = world()
    here.produce(0, b"1")

    def defect(*_: Any) -> Any:
        raise DataError("nobody thought of this")

    with monkeypatch.context() as patch:
        patch.setattr(Lineage, "judge", defect)
        owner.step()
    assert "nobody thought of this" in owner.loop.error
    here.produce(0, b"2")
    here.now += 60.0
    for _ in range(2):
        owner.step()
    assert [order.batch.first.offset for order in owner.starts] == [0, 1]


def test_record_that_exceeds_its_budget_is_a_dead_letter_and_others_start_meanwhile() -> None:
    here, owner = world()
    here.deploy({"schema": {"pattern": "^(a+)+$"}})
    here.settle()
    for value in ("a" * 50 + "!", "aaa", "a" * 51 + "!", "a"):
        here.produce(0, json.dumps(value).encode())
    while len(owner.starts) + len(owner.letters) < 4:
        owner.step()
    assert [order.batch.first.offset for order in owner.starts] == [1, 3]
    assert ["timed out: the evaluation took" in letter.reason for letter in owner.letters] == [True, True]


def test_turn_judges_for_a_bounded_time_and_keeps_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    here, owner = world()
    judge = Lineage.judge

    def slowly(self: Lineage, record: Record) -> Judged:
        here.now += JUDGING
        return judge(self, record)

    monkeypatch.setattr(Lineage, "judge", slowly)
    for _ in range(4):
        here.produce(0, b"1")
    for turn in range(1, 5):
        owner.step()
        assert [order.batch.first.offset for order in owner.starts] == list(range(turn))


def test_departing_consumer_leaves_its_mark_after_the_last_commit() -> None:
    here, owner = world()
    here.produce(0, b"1")
    owner.step()
    here.answer(owner, 0, "done")
    left: list[tuple[list[KafkaPartition], int | None]] = []

    def leave(partitions: Iterable[KafkaPartition]) -> None:
        left.append((list(partitions), here.marks.load(here.life.partition(0))))
        raise StoreError("it does not answer")

    here.marks.leave = leave  # type: ignore[method-assign]
    owner.loop.revoked([here.life.partition(0)])
    assert left == [([here.life.partition(0)], 1)]
    assert owner.loop.machine.partitions == ()


def test_an_end_that_is_heard_of_in_a_handover_is_gone_on_from() -> None:
    """The poll with the handover also returns records of other partitions, from their old positions."""
    here = World({**TRIGGER, "batch": {"maxEvents": 4, "maxWait": "1s"}}, 2, None)
    here.portion = 10
    one, two = Owner(here, 1), Owner(here, 2)
    here.owners += [one, two]
    for number in (0, 1):
        here.assign(number, one, silently=False)
    one.step()
    for number in (1, 0):
        for _ in range(4):
            here.produce(number, b"1")
        one.step()
    asked = one.starts[0].batch
    assert asked.first.partition == 1
    here.written[asked.run] = msgspec.structs.replace(asked, matched=asked.matched[:2], end=2)
    here.produce(1, b"1")
    here.assign(0, two, silently=False)
    serve(here, one, two)
    here.check_end()
    assert here.commits[1][0] == here.life.end(1)


def test_owners_with_other_batches_around_a_refused_record_start_no_run_twice() -> None:
    here = World({**TRIGGER, "batch": {"maxEvents": 4, "maxWait": "1s"}}, 1, None)
    one, two = Owner(here, 1), Owner(here, 2)
    here.owners += [one, two]
    here.assign(0, one, silently=False)
    one.step()
    for offset in range(8):
        here.produce(0, b'"refused"' if offset == 2 else b"1")
    here.portion = 8
    for _ in range(3):
        one.step()
        answer(here, one)
    here.assign(0, two, silently=True)
    one.step()
    answer(here, one)
    here.portion = 3
    serve(here, two)
    here.check_end()
    assert [record.offset for record in here.buried if record.offset != 2] == []


def answer(here: World, owner: Owner) -> None:
    """Answer all requests of the owner."""
    while owner.starts:
        here.answer(owner, 0, "done")
    while owner.letters:
        here.write(owner, 0, True)


def serve(here: World, *owners: Owner) -> None:
    """Run the owners until nothing is left."""
    for _ in range(20):
        here.now += 2.0
        for owner in owners:
            owner.step()
            answer(here, owner)
