"""A library that a function's package lacks is the user's error, with the remedy."""

from __future__ import annotations

import pytest

from treadle.executors.functions.missing_libraries import explained
from treadle.executors.program import Failure, Outcome
from treadle.primitives.errors import FailureClass


def failure(message: str, error: str = "ModuleNotFoundError") -> Failure:
    return Failure(0, 1, FailureClass.INTERNAL, f"exception {error}", error=error, message=message)


@pytest.mark.parametrize(
    ("module", "advice"),
    [
        ("pyarrow", "deploy with `arrow = true`"),
        ("pyarrow.parquet", "deploy with `arrow = true`"),
        ("confluent_kafka", "deploy with `kafka = true`"),
        ("pandas", "deploy an image that has it"),
    ],
)
def test_missing_library_is_a_users_error_that_says_what_adds_it(module: str, advice: str) -> None:
    found = explained(failure(f"No module named '{module}'"))
    assert isinstance(found, Failure)
    assert (found.failure, found.retryable) == (FailureClass.USER_ERROR, False)
    assert module.partition(".")[0] in found.message
    assert advice in found.message


@pytest.mark.parametrize(
    ("message", "advice"),
    [
        ("Parquet needs pyarrow, which is not installed", "arrow = true"),
        ("reading events of a Kafka topic needs confluent-kafka", "kafka = true"),
        ("module 'm' failed on import: ModuleNotFoundError: No module named 'pandas' (m:f)", "image"),
    ],
)
def test_what_treadle_itself_says_of_it_is_understood(message: str, advice: str) -> None:
    found = explained(failure(message, "treadle.primitives.errors.UsageError"))
    assert isinstance(found, Failure)
    assert advice in found.message


def test_other_failures_and_outcomes_stay_as_they_are() -> None:
    for report in (failure("boom", "ValueError"), failure("odd"), Outcome(0, 1, "objects", 1)):
        assert explained(report) is report
