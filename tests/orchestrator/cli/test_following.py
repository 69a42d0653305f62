"""The output of `logs` about attempts."""

from __future__ import annotations

import time
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import pytest

from treadle.client.attempt_logs import LogFollower, group_lines, grouped, lines_of
from treadle.executors.attempt_log import attempt_logger
from treadle.orchestrator.dispatcher.ledger.attempt_records import AttemptRecord
from treadle.orchestrator.run_store.run_files import RunFiles
from treadle.primitives.stores.store import Store

MODULES = f"/home/ada/.cache/treadle-0/bundles/{'0' * 64}/modules"
STACKS = f"""Current thread 0x00007f (most recent call first):
  File "{MODULES}/sleepy.py", line 2 in nap
  File "{MODULES}/sleepy.py", line 5 in work
  File "/site/treadle/executors/operations/maps.py", line 39 in _mapped
  File "<frozen runpy>", line 88 in _run_code
"""


def timed_out(log: str, stacks: str = STACKS) -> AttemptRecord:
    about: dict[str, Any] = {
        "failure": "timed out",
        "message": "it ran longer than its 1 s",
        "how": "it ran longer than its 1 s",
    }
    return AttemptRecord("read", 0, 1, 0.0, **about, traceback=stacks, log=log + stacks)


def test_killed_attempt_shows_its_stack_once_down_to_the_users_code() -> None:
    record = timed_out("begun\n")
    (group,) = grouped([record, record])
    assert list(group_lines(group))[2:] == [
        "  Current thread 0x00007f (most recent call first):",
        '    File "sleepy.py", line 2 in nap',
        '    File "sleepy.py", line 5 in work',
    ]
    assert [line.partition("#1 ")[2] for line in lines_of(record)] == [
        "begun",
        "failed, will be tried again: timed out: it ran longer than its 1 s",
    ]


def test_killed_attempt_shows_its_stack_outside_of_the_users_code_too() -> None:
    stacks = 'Thread 0x00007f (most recent call first):\n  File "/site/numpy/core.py", line 7 in dot\n'
    (group,) = grouped([timed_out("", stacks)])
    assert list(group_lines(group))[2:] == [f"  {line}" for line in stacks.splitlines()]


def test_a_traceback_of_the_users_own_stays_whole() -> None:
    raised = f'Traceback (most recent call last):\n  File "{MODULES}/a.py", line 1, in f\nValueError: no\n'
    (group,) = grouped([timed_out("", raised)])
    assert list(group_lines(group))[-1] == "  ValueError: no"


def test_log_line_of_a_function_has_its_own_time_and_place_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", written := StringIO())
    monkeypatch.setattr("time.time", lambda: 7.5)
    monkeypatch.setattr("time.time_ns", lambda: 7_500_000_000)  # logging uses it from Python 3.13 on
    attempt_logger("lloyd[3].read[0]").info("two\nlines of %d", 1)
    record = AttemptRecord("lloyd-3/read", 0, 2, 60.0, log=f"printed\n{written.getvalue()}")
    begun, over = (time.strftime("%H:%M:%S", time.localtime(seconds)) for seconds in (7, 60))
    assert list(lines_of(record)) == [
        f"{over} lloyd-3/read[0]#2 printed",
        f"{begun} lloyd[3].read[0]#2 INFO two",
        f"{begun} lloyd-3/read[0]#2 lines of 1",
    ]


def test_damaged_line_of_an_attempt_log_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Store.open(tmp_path.as_uri())
    good = msgspec.json.encode(AttemptRecord("a", 0, 1, 0.0, message="kept"))
    store.put("runs/r/attempts/a/1.jsonl", b"\n".join([b"\xff{garbage", good, b"[]", b"{" * 99]))
    found = LogFollower(RunFiles(store, "r", b"k" * 32)).new()
    assert [record.message for record in found] == ["kept"]
    assert caplog.text.count("is no record of an attempt and is left out") == 3
