"""The deployment key, as a function fetches it. tests/deployment/test_keys.py stores it and runs with it."""

from __future__ import annotations

import socket

import pytest
from botocore.exceptions import ReadTimeoutError

from treadle.executors.aws import entry


@pytest.mark.parametrize("where", ["ssm:/treadle/key", "secretsmanager:treadle/key"])
def test_a_service_that_does_not_answer_is_given_up(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for name in ("SSM", "SECRETS_MANAGER"):
            monkeypatch.setenv(f"AWS_ENDPOINT_URL_{name}", f"http://127.0.0.1:{silent.getsockname()[1]}")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
            monkeypatch.setenv(name, "test-1")
        with pytest.raises(ReadTimeoutError):
            entry.fetch_key(where)
