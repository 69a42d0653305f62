"""Commands that treadle suggests can be run unchanged, including the given profile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from treadle.cli.commands import app
from treadle.cli.common.environment import Environment
from treadle.cli.common.exit_codes import reported
from treadle.cli.common.hints import advice
from treadle.primitives.errors import UsageError


def commands() -> Iterator[tuple[str, bool]]:
    """(the command as typed, whether it has the option)."""
    root: Any = typer.main.get_command(app)
    for name, command in root.commands.items():
        for inner, each in getattr(command, "commands", {"": command}).items():
            takes = any("--profile" in parameter.opts for parameter in each.params)
            yield f"{name.replace('deploy-', 'deploy ')} {inner}".strip(), takes


@pytest.mark.parametrize(("command", "takes"), list(commands()))
def test_a_command_is_suggested_with_the_profile_if_it_takes_one(command: str, takes: bool, tmp_path: Path) -> None:
    Environment("lab", tmp_path)
    told = advice(f"See: treadle {command} X")
    assert told == (f"See: treadle {command} --profile lab X" if takes else f"See: treadle {command} X")


def test_only_a_profile_that_the_next_command_would_not_have_is_suggested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Environment("lab", tmp_path)
    Environment(None, tmp_path)
    assert advice("treadle watch a; treadle show b") == "treadle watch a; treadle show b"
    Environment("my lab", tmp_path)
    told = advice("treadle watch a; treadle show b")
    assert told == "treadle watch --profile 'my lab' a; treadle show --profile 'my lab' b"
    monkeypatch.setenv("TREADLE_PROFILE", "lab")
    Environment("lab", tmp_path)
    assert advice("treadle watch a") == "treadle watch a"


def test_hints_of_errors_are_suggestions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Environment("lab", tmp_path)
    with pytest.raises(typer.Exit), reported():
        raise UsageError("there is no run a", "See: treadle list")
    assert capsys.readouterr().err == "treadle: there is no run a\n  See: treadle list --profile lab\n"
