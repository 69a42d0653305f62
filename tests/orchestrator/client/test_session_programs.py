"""Random programs of calls, failures, cancellations and kills of real processes give what plain Python gives."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path

import msgspec
import pytest
from hypothesis import event, example, given
from orchestrator.client.session_programs import (
    Cancel,
    Cut,
    KillClient,
    KillDriver,
    Map,
    Outcome,
    Reduce,
    Statement,
    Submit,
    meaning,
    notes,
    outcome,
    programs,
    starts,
)
from properties.profiles import examples

from treadle.client import Future, Futures, attach
from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home

pytestmark = pytest.mark.timeout(0)

CLIENT = Path(__file__).with_name("session_programs.py")
PATIENCE = 120
NUMBERS = count()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("programs") / "home"
    yield folder
    embedded.down(Home(folder))


def run_clients(home: Path, run: str, folder: Path) -> int:
    """Run the program's clients, one after another, until one is not killed. Returns the number of killed ones."""
    killed, client = 0, [sys.executable, str(CLIENT), str(home), run, str(folder)]
    while subprocess.run(client, check=False, timeout=PATIENCE).returncode == -signal.SIGKILL:
        killed += 1
    return killed


def outcomes(made: Future | Futures) -> Outcome:
    if isinstance(made, Futures):
        return [outcomes(one) for one in made]
    return outcome(partial(made.result, PATIENCE))


def check(program: Sequence[Statement], home: Path, folder: Path) -> None:
    folder.mkdir()
    (folder / "program.json").write_bytes(msgspec.json.encode(program))
    killed = run_clients(home, folder.name, folder)
    assert killed == sum(isinstance(one, KillClient) for one in program)
    s = attach(folder.name, home=home)
    found = [outcomes(made) for made in s.futures()]
    s.end()
    cancelled = {number for number, one in enumerate(found) if one == Cut(itself=True)}
    assert found == meaning(program, cancelled)
    assert cancelled <= {one.of for one in program if isinstance(one, Cancel)}
    for number, answer in notes(folder / "cancelled.jsonl"):
        assert answer == (number in cancelled)
    for number in cancelled:
        assert starts(folder, f"{number}") == 0
    for name, before in notes(folder / "ended.jsonl"):
        assert starts(folder, name) == before, "a call that had ended ran again"
    event(f"cancelled: {bool(cancelled)}")


@example(program=(Map(("add",), 1), KillClient(accepted=True)))
@example(
    program=(
        Submit("slow"),
        Map(("add", "slow", "add", "refuse"), 2, (0,)),
        KillDriver(),
        Submit("die", (0,)),
        KillClient(accepted=True),
        Reduce(("add", "slow", "add", "add"), 1, 2),
        Submit("slow", (3,)),
        Cancel(4),
        KillDriver(),
        Submit("add", (0, 2, 3)),
        KillClient(accepted=False),
        Submit("add", (4,)),
        Submit("add", (1, 4)),
    )
)
@examples(3)
@given(program=programs())
def test_programs_of_calls_with_kills_are_as_in_plain_python(
    program: tuple[Statement, ...], home: Path, tmp_path: Path
) -> None:
    check(program, home, tmp_path / f"program-{next(NUMBERS)}")
