"""Scripts that schedule events across processes."""

from __future__ import annotations

import json
import multiprocessing
from contextlib import nullcontext
from pathlib import Path

import msgspec
import pytest

from treadle.executors.testing.script import ACTIONS, Script, ScriptedError


def test_steps_follow_partition_and_time(tmp_path: Path) -> None:
    script = Script.of(tmp_path, {1: [[("raise", "first")], [], [("raise", "third")]]})
    for error in ("first", "", "third", ""):
        with pytest.raises(ScriptedError, match=error) if error else nullcontext():
            script.play(1)
    assert (script.times(1), script.times(0)) == (4, 0)


def test_star_is_every_other_partition(tmp_path: Path) -> None:
    script = Script.of(tmp_path, {1: [], "*": [[("raise", "other")]]})
    script.play(1)
    for partition in (0, 2):
        with pytest.raises(ScriptedError, match="other"):
            script.play(partition)


def test_partition_1_is_not_counted_as_partition_11(tmp_path: Path) -> None:
    script = Script.of(tmp_path, {})
    script.play(11)
    assert (script.times(1), script.times(11)) == (0, 1)


def test_script_travels_as_json(tmp_path: Path) -> None:
    script = Script.of(tmp_path, {0: [[("sleep", 0.5), ("raise", "x")]], "*": [[]]})
    assert msgspec.convert(json.loads(json.dumps(script.as_value())), Script) == script


def test_no_time_is_counted_twice_by_racing_processes(tmp_path: Path) -> None:
    script = Script.of(tmp_path, {})
    plays = map(script.play, [0] * 10)
    processes = [multiprocessing.get_context("spawn").Process(target=list, args=(plays,)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert script.times(0) == 30


def test_actions_have_distinct_meanings() -> None:
    assert len({id(action) for action in ACTIONS.values()}) == len(ACTIONS)
