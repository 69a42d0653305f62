"""The state that follows from the records of a chain: finished partitions, remaining budgets, the start of a
deadline."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from treadle.executors.program import Outcome
from treadle.orchestrator.dispatcher.ledger.ledger import (
    Closed,
    Committed,
    Copied,
    Epoch,
    Expected,
    Failed,
    GangCheckpoint,
    Lost,
    Record,
    Started,
)
from treadle.orchestrator.dispatcher.ledger.ledger_state import SegmentHistory, copied, lost_partitions, replay
from treadle.primitives.encoding.references import BlockRef, Part

HOST = "host:a"


def outcome(partition: int, attempt: int = 1, *locations: str) -> Outcome:
    block = BlockRef(f"s/{partition}.{attempt}.x", "objects", 1, (), locations) if locations else None
    return Outcome(partition, attempt, "objects", 1, block)


def commit(partition: int, attempt: int = 1, *locations: str) -> Committed:
    return Committed("s", outcome(partition, attempt, *locations))


def failed(partition: int, attempt: int = 1, kind: str = "user error", spent: bool = True) -> Failed:
    return Failed("s", partition, attempt, kind, "no", final=False, spent=spent)


def epoch(number: int, resumption: int = 1, time: float = 0.0) -> Epoch:
    return Epoch(number, "w", resumption, time)


def locations(found: SegmentHistory) -> dict[int, tuple[str, ...]]:
    return {p: one.block.locations for p, one in found.committed.items() if one.block is not None}


def test_a_new_driver_keeps_the_deadline_and_a_resumption_gets_a_fresh_one() -> None:
    first: list[Record] = [epoch(1, time=10.0), Expected("s", 3, 11.0)]
    assert (replay(first, "s").opened, replay(first, "s").expected) == (11.0, 3)
    taken_over: list[Record] = [*first, epoch(2, time=20.0), Expected("s", 3, 21.0)]
    assert replay(taken_over, "s").opened == 11.0
    assert replay([*taken_over, epoch(3, 2, time=30.0)], "s").opened == 30.0
    assert replay([*taken_over, epoch(3, 2, time=30.0)], "other").opened is None


def test_recomputed_partition_has_the_whole_deadline() -> None:
    """The stage met its deadline. Hours later, the host with its blocks is lost."""
    records: list[Record] = [epoch(1, time=10.0), Expected("s", 1, 11.0), commit(0), Lost("s", (0,))]
    assert replay(records, "s").opened is None


def test_records_of_other_segments_of_the_chain_say_nothing() -> None:
    mine: list[Record] = [Expected("s", 2, 1.0), Started("s", {0: 1, 1: 1}), commit(0, 1, HOST), failed(1)]
    block = BlockRef("t/0.7.x", "objects", 1, (), ("host:b",))
    others: list[Record] = [
        Expected("t", 9, 5.0),
        Started("t", {0: 7, 5: 7}),
        Committed("t", Outcome(0, 7, "objects", 1, block)),
        Copied("t", (0,)),
        Failed("t", 0, 7, "user error", "no", final=True, spent=True),
        Lost("t", (0,)),
        Closed("t"),
    ]
    assert replay([*mine, *others], "s") == replay(mine, "s")
    assert not replay(mine, "s").closed
    assert replay([*mine, Closed("s"), *others], "s").closed


def test_a_lost_block_takes_its_commit_back_and_opens_the_segment_again() -> None:
    records: list[Record] = [commit(0), commit(1), commit(2), Closed("s"), Lost("s", (0, 2, 9))]
    found = replay(records, "s")
    assert (set(found.committed), found.closed) == ({1}, False)
    assert replay([*records, commit(0, 2), Closed("s")], "s").committed == {1: outcome(1), 0: outcome(0, 2)}


def test_segment_that_lost_blocks_keeps_its_partitions_until_a_user_reruns_it() -> None:
    """With a quorum these are not all partitions."""
    records: list[Record] = [commit(0), commit(2), Lost("s", (0,)), commit(0, 2), Lost("s", (0, 2)), commit(1)]
    assert replay(records, "s").frozen == {0, 2}
    assert replay([*records, Lost("s", (1,), anew=True)], "s").frozen == set()


def test_a_copy_adds_the_store_to_commits_that_still_hold() -> None:
    records: list[Record] = [commit(0, 1, HOST), commit(1, 1, HOST), commit(2, 1, HOST), commit(3)]
    records += [Lost("s", (1,)), Copied("s", (0, 1, 3)), Copied("s", (0,))]
    found = replay(records, "s")
    assert locations(found) == {0: (HOST, "store"), 2: (HOST,)}
    assert set(found.committed) == {0, 2, 3}


@pytest.mark.parametrize("known", [outcome(0), outcome(0, 1, HOST, "store"), outcome(0, 1, "store")])
def test_block_in_the_store_or_without_a_location_is_not_copied(known: Outcome) -> None:
    assert copied(known, ()) is known


def test_a_copy_gives_the_parts_of_a_block_their_digests() -> None:
    parts = tuple(Part(0, 1, 1, 5, digest) for digest in (b"first", b"second"))
    block = BlockRef("s/0.1.x", "objects", 2, parts, (HOST, "store"))
    bare = msgspec.structs.replace(commit(0), outcome=Outcome(0, 1, "objects", 2, without_digests(block)))
    assert replay([bare, Copied.of("s", {0: block})], "s").committed[0].block == block


def without_digests(block: BlockRef) -> BlockRef:
    parts = tuple(msgspec.structs.replace(part, digest=b"") for part in block.parts)
    return msgspec.structs.replace(block, parts=parts, locations=block.locations[:1])


def test_a_copy_without_digests_keeps_the_digests_of_the_parts() -> None:
    block = BlockRef("s/0.1.x", "objects", 2, (Part(0, 1, 1, 5, b"first"),), (HOST,))
    known = msgspec.structs.replace(commit(0), outcome=Outcome(0, 1, "objects", 2, block))
    assert replay([known, Copied("s", (0,))], "s").committed[0].block == block.in_store(())


def test_failures_count_as_spent_as_losses_or_not_at_all() -> None:
    records: list[Record] = [
        failed(0, 1),
        failed(0, 2),
        failed(0, 3, "worker lost", spent=False),
        failed(0, 4, "unreachable", spent=False),
        failed(0, 5, "throttled", spent=False),
        failed(1, 1, "worker lost", spent=False),
    ]
    found = replay(records, "s")
    assert (found.spent, found.losses, found.starts) == ({0: 2}, {0: 2, 1: 1}, {0: 5, 1: 1})


@pytest.mark.parametrize("end", [commit(0, 1), failed(0, 1)])
def test_attempt_numbers_continue_from_the_newest_in_any_order_of_ends(end: Record) -> None:
    assert replay([Started("s", {0: 1}), Started("s", {0: 2}), end], "s").starts == {0: 2}
    assert replay([end], "s").starts == {0: 1}


@pytest.mark.parametrize("end", [commit(0), failed(0)])
def test_only_attempts_without_an_end_are_crashes_of_the_driver_that_dies(end: Record) -> None:
    records: list[Record] = [epoch(1), Started("s", {0: 1, 1: 1}), end, epoch(2)]
    found = replay(records, "s")
    assert (found.crashes, found.cut_off) == ({1: 1}, {1})
    found = replay([*records, epoch(3)], "s")
    assert (found.crashes, found.cut_off) == ({1: 1}, {1})
    found = replay([*records, Started("s", {1: 2}), epoch(3)], "s")
    assert (found.crashes, found.cut_off) == ({1: 2}, {1})


@pytest.mark.parametrize("known", [Started("s", {1: 2}), commit(1), failed(1)])
def test_an_attempt_that_was_cut_off_matters_until_more_is_known(known: Record) -> None:
    records: list[Record] = [epoch(1), Started("s", {0: 1, 1: 1}), epoch(2), known]
    assert replay(records, "s").cut_off == {0}


def test_a_persons_resume_forgives_everything_and_a_mere_takeover_nothing() -> None:
    records: list[Record] = [epoch(1), failed(0), failed(1, 1, "worker lost", spent=False), Started("s", {2: 1})]

    def counted(*more: Record) -> tuple[Any, ...]:
        found = replay([*records, *more], "s")
        return found.spent, found.losses, found.crashes, found.cut_off, found.resumption

    assert counted(epoch(2)) == ({0: 1}, {1: 1}, {2: 1}, {2}, 1)
    assert counted(epoch(2, 2)) == ({}, {}, {}, {2}, 2)
    assert counted(epoch(2, 2), failed(0, 2), epoch(3, 2)) == ({0: 1}, {}, {}, {2}, 2)
    assert counted(epoch(2, 2), failed(0, 2), epoch(3, 1)) == ({0: 1}, {}, {}, {2}, 2)


def test_lost_partitions_are_those_whose_committed_block_it_is() -> None:
    known = [outcome(0, 1, HOST), outcome(1, 2, HOST), outcome(2)]
    assert lost_partitions(known, ["s/0.1.x", "s/1.1.x", "s/2.1.x"]) == (0,)


def checkpoint(number: int, *states: str) -> GangCheckpoint:
    return GangCheckpoint("s", number, tuple(BlockRef(name, "objects", 1, (), ("store",)) for name in states))


def test_last_two_checkpoints_count_until_the_commit() -> None:
    records: list[Record] = [epoch(1), *(checkpoint(number, f"{number}.0") for number in (1, 2, 3))]
    assert set(replay(records, "s").checkpoints) == {2, 3}
    assert replay(records, "other").checkpoints == {}
    damaged = [*records, checkpoint(3)]
    assert set(replay(damaged, "s").checkpoints) == {2}
    again = replay([*damaged, checkpoint(3, "3.0.b")], "s")
    assert [state.name for state in again.checkpoints[3]] == ["3.0.b"]
    assert set(again.checkpoints) == {2, 3}
    assert replay([*records, commit(0)], "s").checkpoints == {}


def test_checkpoint_starts_the_count_of_losses_again() -> None:
    records: list[Record] = [epoch(1), Started("s", {0: 1}), failed(0, 1, "worker lost", False), Started("s", {0: 2})]
    taken_over = [*records, epoch(2)]
    assert (replay(taken_over, "s").losses, replay(taken_over, "s").crashes) == ({0: 1}, {0: 1})
    after = replay([*taken_over, Started("s", {0: 3}), checkpoint(1, "1.0")], "s")
    assert (after.losses, after.crashes, after.starts[0]) == ({}, {}, 3)
