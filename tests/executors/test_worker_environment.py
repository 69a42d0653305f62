"""What workers find in their environment."""

from __future__ import annotations

import pytest

from treadle.executors.worker_environment import FIXED, worker_environment


@pytest.mark.parametrize(
    "name",
    ["TEMPORAL_API_KEY", "TREADLE_SECRET_TOKEN", "TREADLE_KEY_FILE", "treadle_key", "__OW_API_KEY", "WSK_AUTH"],
)
def test_credentials_of_the_driver_are_withheld(name: str) -> None:
    assert worker_environment({name: "x"}) == FIXED


@pytest.mark.parametrize("name", ["AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "PATH", "LD_LIBRARY_PATH", "MY_SETTING"])
def test_what_stores_and_user_code_need_stays(name: str) -> None:
    assert worker_environment({name: "x"})[name] == "x"


def test_what_fixes_results_cannot_be_overridden() -> None:
    assert worker_environment({"PYTHONHASHSEED": "random", "PYTHONUTF8": "0"}) == FIXED
