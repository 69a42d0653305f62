"""Whole numbers beyond 64 bits, which no ledger holds, are refused with a message from any origin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from orchestrator.broken_runs import failure, values
from orchestrator.conftest import Breaking
from orchestrator.record_histories import mapped, spec

from treadle.client.testing import EngineFailure
from treadle.dsl.model import Spec
from treadle.dsl.validation.inputs import InvalidInputs, resolve_inputs
from treadle.orchestrator.run_store.run_files import LoopResult, RunFiles, Submission
from treadle.orchestrator.scheduler.instructions import Summary
from treadle.primitives.errors import CorruptError, UsageError
from treadle.primitives.stores.store import Store

LARGEST = 2**64 - 1


@pytest.fixture
def files(tmp_path: Path) -> RunFiles:
    return RunFiles(Store.open(f"file://{tmp_path}"), "r", b"k" * 32)


def test_a_run_of_such_numbers_is_refused(files: RunFiles) -> None:
    def submission(number: int) -> Submission:
        return Submission("r", {"stages": {"s": {"input": {"items": [number]}}}}, {}, "", {}, "/")

    with pytest.raises(UsageError, match="more than 64 bits"):
        files.create("spec", submission(LARGEST + 1))
    assert files.create("spec", submission(LARGEST))


@pytest.mark.parametrize(("number", "fits"), [(LARGEST, True), (-(2**63), True), (2**64, False), (-(2**63) - 1, False)])
def test_an_input_may_have_64_bits(number: int, fits: bool) -> None:
    declared = {"n": {"type": "integer", "required": True}}
    known = Spec.model_validate(spec(one=mapped({"range": 1})) | {"inputs": declared}, by_alias=True, by_name=False)
    if fits:
        assert resolve_inputs(known, {"n": number}) == {"n": number}
    else:
        with pytest.raises(InvalidInputs, match="more than 64 bits"):
            resolve_inputs(known, {"n": number})


def grows(times: int) -> dict[str, Any]:
    return spec(
        start=mapped({"range": 2, "partitions": 1}),
        turns={
            "type": "loop",
            "state": {"data": "start", "n": 2**32},
            "maxIterations": times,
            "stages": {"step": mapped("state.data")},
            "next": {"data": "step", "n": "${{ state.n * 65536 }}"},
        },
        end=mapped("turns.state.data"),
    )


def test_a_state_that_outgrows_the_ledger_is_the_users_error(breaking: Breaking) -> None:
    found, _ = breaking(grows(3)).go()
    assert failure(found) == "user error"
    assert isinstance(found, EngineFailure)
    assert "has more than 64 bits" in found.problem.message


def test_a_state_that_does_not_is_kept(breaking: Breaking) -> None:
    found, _ = breaking(grows(1)).go()
    assert values(found, "end") == [[0, 1]]


def test_object_of_another_version_is_named(files: RunFiles) -> None:
    files.create("plan", LoopResult({}, {}, Summary()))
    with pytest.raises(CorruptError, match="runs/r/plan is not what this version of treadle writes"):
        files.load(Submission, "plan")
