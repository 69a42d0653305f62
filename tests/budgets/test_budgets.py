"""Each hot path keeps its budget, and a call or a copy that is added to one does not stay unseen."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from budgets.commands import COMMANDS
from budgets.measure import budgets, measured, problem, renewed
from budgets.paths import PATHS

from treadle.orchestrator.dispatcher.decisions.task_sizing import TaskSizes
from treadle.primitives import blocks
from treadle.primitives.encoding.codec import decode

KNOWN = budgets()


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, int]]:
    """The amounts of all paths, measured in a process in which no test has run."""
    command = [sys.executable, "-m", "budgets", "--json"]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    amounts: dict[str, dict[str, int]] = json.loads(done.stdout)
    return amounts


@pytest.mark.parametrize(("path", "unit"), [(path, unit) for path, units in KNOWN.items() for unit in units])
def test_hot_path_keeps_its_budget(found: dict[str, dict[str, int]], path: str, unit: str) -> None:
    wrong = problem(path, unit, KNOWN[path][unit], found[path][unit])
    assert not wrong, wrong


def test_every_hot_path_has_a_budget() -> None:
    assert sorted(KNOWN) == sorted([*COMMANDS, *PATHS])


def test_one_more_call_for_each_task_exceeds_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    took = TaskSizes.took

    def slower(sizes: TaskSizes, seconds: float) -> None:
        took(sizes, seconds)

    monkeypatch.setattr(TaskSizes, "took", slower)
    assert exceeds("dispatch_of_tasks", "calls")


def test_copy_of_a_large_block_exceeds_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "decode", lambda data: decode(memoryview(bytes(data))))
    assert exceeds("large_block", "heap_mib")


def exceeds(path: str, unit: str) -> bool:
    return "its budget is" in problem(path, unit, KNOWN[path][unit], measured(path)[unit].amount)


@pytest.mark.parametrize(
    ("budget", "amount", "wrong"),
    [(200, 203, ""), (200, 204, "TOP=p"), (0, 1, "TOP=p"), (0, 0, ""), (200, 190, ""), (200, 189, "Lower it")],
)
def test_budget_allows_little_more_and_five_per_cent_less(budget: int, amount: int, wrong: str) -> None:
    text = problem("p", "calls", budget, amount)
    assert wrong in text if wrong else not text


def test_renewed_file_has_the_new_amounts_and_the_old_comments() -> None:
    text = "# why\na.calls = 1_000  # each\nb.heap_mib = 3\n"
    new = {"a": {"calls": 12345}, "b": {"heap_mib": 0, "calls": 7}}
    assert renewed(text, new) == "# why\na.calls = 12_345  # each\nb.heap_mib = 0\n"
