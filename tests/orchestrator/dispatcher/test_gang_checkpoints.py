"""A gang that saves checkpoints loses the work since the last one, whichever process dies."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from orchestrator.broken_runs import Broken, failure, values
from orchestrator.conftest import Breaking
from orchestrator.dispatcher.test_gangs import TWICE, gang, records
from orchestrator.record_histories import spec

from treadle.client.testing.engine import EngineFailure
from treadle.client.testing.faults import CrashingStore
from treadle.client.testing.harness import Harness
from treadle.dsl.model import Spec
from treadle.dsl.reference import run_reference
from treadle.orchestrator.dispatcher.ledger.ledger import Failed, GangCheckpoint
from treadle.primitives.errors import StoreError

STEPS = 6
END = [[6.0, 126.0], [6.0, 126.0]]


def training(folder: Path, **more: Any) -> dict[str, Any]:
    args = {"folder": str(folder), "steps": STEPS, **more}
    return spec(sum=gang("trains", flat=True, **{"with": args}, retry=TWICE))


def work(folder: Path) -> Counter[int]:
    """How often each step was begun by both members together; a step that one member has begun counts for both."""
    begun = [Counter(int(line.split(":")[1]) for line in path.read_text().split()) for path in folder.glob("*.steps")]
    return begun[0] | begun[1]


def checkpoints(run: Broken) -> list[tuple[int, bool]]:
    return [(one.number, bool(one.states)) for one in records(run, "sum") if isinstance(one, GangCheckpoint)]


def states_left(run: Broken) -> list[str]:
    return [info.name for info in run.store.list(f"runs/{run.run}/blocks/checkpoints")]


def test_checkpoints_do_not_change_the_result(breaking: Breaking, tmp_path: Path) -> None:
    document = training(tmp_path)
    meant = run_reference(Spec.model_validate(document))
    assert [partition.value for partition in meant.datasets["sum"]] == END
    assert work(tmp_path) == Counter(dict.fromkeys(range(1, STEPS + 1), 1))
    assert values(breaking(document).go()[0], "sum") == END


def test_checkpoint_is_one_record_and_its_states_go_with_the_gang(breaking: Breaking, tmp_path: Path) -> None:
    run = breaking(training(tmp_path))
    found, _ = run.go()
    assert values(found, "sum") == END
    assert checkpoints(run) == [(step, True) for step in range(1, STEPS + 1)]
    assert states_left(run) == []


def test_gang_continues_from_its_checkpoint_when_a_member_is_killed(breaking: Breaking, tmp_path: Path) -> None:
    run = breaking(training(tmp_path, die={"1": [1, 4]}))
    found, _ = run.go()
    assert values(found, "sum") == END
    assert work(tmp_path) == Counter({1: 1, 2: 1, 3: 1, 4: 2, 5: 1, 6: 1})
    assert [number for number, _ in checkpoints(run)] == [1, 2, 3, 4, 5, 6]


def test_gang_that_progresses_survives_more_losses_than_a_partition_may_have(
    breaking: Breaking, tmp_path: Path
) -> None:
    steps = 12
    run = breaking(training(tmp_path, steps=steps, die={str(one): [one % 2, one] for one in range(1, steps + 1)}))
    found, _ = run.go()
    assert values(found, "sum") == [[12.0, 468.0]] * 2
    assert work(tmp_path) == Counter(dict.fromkeys(range(1, steps + 1), 2))


def test_gang_without_progress_is_poison_after_ten_losses(breaking: Breaking, tmp_path: Path) -> None:
    run = breaking(training(tmp_path, die={str(one): [1, 2] for one in range(1, 12)}))
    found, _ = run.go()
    assert failure(found) == "poison"
    assert work(tmp_path)[1] == 1
    assert work(tmp_path)[2] == 10


@pytest.mark.parametrize("after", [False, True], ids=["before the write", "after the write"])
def test_gang_continues_from_its_checkpoint_when_the_driver_dies(
    breaking: Breaking, tmp_path: Path, after: bool
) -> None:
    run = breaking(training(tmp_path))
    store = CrashingStore(run.store, 5, after=after)
    with pytest.raises(StoreError):
        run.go(store=store)
    done = [number for number, _ in checkpoints(run)]
    assert 0 < len(done) < STEPS
    found, _ = run.go()
    assert values(found, "sum") == END
    assert [number for number, _ in checkpoints(run)] == [1, 2, 3, 4, 5, 6]
    again = [step for step, count in work(tmp_path).items() if count > 1]
    assert again == ([] if after else [len(done) + 1])


def test_torn_checkpoint_is_never_restored(slots: tuple[Harness, Any], breaking: Breaking, tmp_path: Path) -> None:
    """One member is killed in step 4 when the other one has put its state into the store."""
    store = f"{slots[0].folder}/store"
    run = breaking(training(tmp_path, size=2000, die={"1": [0, 4], "2": [1, 4]}, store=store))
    found, _ = run.go()
    assert values(found, "sum") == END
    assert work(tmp_path) == Counter({1: 1, 2: 1, 3: 1, 4: 3, 5: 1, 6: 1})
    assert states_left(run) == []


@pytest.mark.parametrize("how", ["delete", "corrupt"])
def test_damaged_checkpoint_is_named_and_the_one_before_it_counts(breaking: Breaking, tmp_path: Path, how: str) -> None:
    run = breaking(training(tmp_path, size=2000))
    with pytest.raises(StoreError):
        run.go(store=CrashingStore(run.store, 5, after=True))
    last = [one for one in records(run, "sum") if isinstance(one, GangCheckpoint)][-1]
    assert last.number > 1
    run.damage(last.states[1], how)
    found, _ = run.go()
    assert values(found, "sum") == END
    assert (last.number, False) in checkpoints(run)
    (failed,) = [one for one in records(run, "sum") if isinstance(one, Failed) and one.partition == 1]
    assert last.states[1].name in failed.message
    assert not failed.spent
    assert work(tmp_path)[1] == 1


@pytest.mark.parametrize("times", [[1, 3], [3, 0]])
def test_member_that_ends_without_a_checkpoint_is_an_error_of_the_user(breaking: Breaking, times: list[int]) -> None:
    document = spec(sum=gang("disagrees", **{"with": {"times": times}}, retry={"maximumAttempts": 1}))
    found, _ = breaking(document).go()
    assert failure(found) == "user error"
    assert isinstance(found, EngineFailure)
    early = times.index(min(times))
    assert f"checkpoint {min(times) + 1}: member {early} has ended without it" in found.problem.message


def test_large_state_is_a_block_and_its_record_small(breaking: Breaking, tmp_path: Path) -> None:
    run = breaking(training(tmp_path, size=200_000, die={"1": [1, 3]}))
    found, _ = run.go()
    assert values(found, "sum") == END
    files = run.engine(run.executor).site.files(run.run)
    assert max(info.size for info in run.store.list(f"{files.segment('sum')}/ledger/")) < 8192
