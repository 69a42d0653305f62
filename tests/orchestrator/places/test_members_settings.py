"""The table `members` of a profile, and the provider's defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from treadle.executors.plugin import Place
from treadle.orchestrator.executor_registry.builtin_executors import (
    LambdaSettings,
    OpenWhiskSettings,
    open_lambda,
    open_openwhisk,
)
from treadle.primitives import sealing


def meeting(provider: str, folder: Path, **members: Any) -> Any:
    """The meeting point of this provider's functions."""
    sealing.load_or_create_key(folder / "key")
    place = Place("file:///nowhere", str(folder / "key"), str(folder), lambda name: "id:key")
    table = {"members": {"coordinator": "tcp://127.0.0.1:0", **members}}
    if provider == "lambda":
        executor = open_lambda(LambdaSettings.model_validate({"region": "eu-test-1", **table}), place)
    else:
        executor = open_openwhisk(OpenWhiskSettings.model_validate({"endpoint": "https://ow", **table}), place)
    # private: the setting shows in a running gang only
    return executor.members._hub.meeting  # type: ignore[attr-defined]


@pytest.mark.parametrize(("provider", "reached"), [("lambda", False), ("openwhisk", True)])
def test_functions_of_lambda_are_not_dialled_and_keep_blocks_only_if_asked(
    provider: str, reached: bool, tmp_path: Path
) -> None:
    found = meeting(provider, tmp_path)
    assert (found.direct, found.inbound) == (reached, reached)
    found = meeting(provider, tmp_path, direct=True)
    assert (found.direct, found.inbound) == (True, reached)
    found = meeting(provider, tmp_path, direct=True, inbound=not reached)
    assert (found.direct, found.inbound) == (True, not reached)
