"""Options that belong together are one value, and are checked before the command starts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from treadle.cli import run
from treadle.cli.common.environment import Environment
from treadle.cli.common.exit_codes import Exit, code_of
from treadle.cli.common.new_run import Given
from treadle.cli.common.options import with_options
from treadle.cli.dlq_lookup import Letters
from treadle.cli.run import Starting
from treadle.cli.view.watcher import Watching
from treadle.primitives.errors import MissingError, UsageError


@dataclass(frozen=True)
class Loom:
    """A value with two options."""

    threads: Annotated[int, typer.Option("--threads", "-t", min=1)] = 4
    name: Annotated[str | None, typer.Option("--name")] = None


def weaving(seen: list[Any]) -> typer.Typer:
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)

    @app.command()
    @with_options
    def weave(file: str, loom: Loom, dry: bool = False, profile: str = "none") -> None:
        """Weave."""
        seen.append((file, loom, dry, profile))

    return app


def test_fields_of_a_dataclass_are_options_of_the_command() -> None:
    seen: list[Any] = []
    runner = CliRunner()
    for arguments in (["a"], ["a", "-t", "9", "--dry", "--profile", "p"]):
        done = runner.invoke(weaving(seen), arguments)
        assert done.exit_code == 0, done.output
    assert seen == [("a", Loom(), False, "none"), ("a", Loom(9), True, "p")]
    assert runner.invoke(weaving(seen), ["a", "-t", "0"]).exit_code == 2


def test_options_of_a_group_stand_behind_the_commands_own_and_the_profile_is_last() -> None:
    shown = CliRunner().invoke(weaving([]), ["--help"]).output
    at = [shown.index(name) for name in ("--dry", "--threads", "--name", "--profile")]
    assert at == sorted(at)
    assert "Weave." in shown


@pytest.mark.parametrize("make", [lambda: Watching(timeout="5"), lambda: Starting(start_delay="soon")])
def test_invalid_duration_is_refused_when_options_are_parsed(make: Any) -> None:
    with pytest.raises(UsageError, match=r"--timeout|--start-delay"):
        make()


@pytest.mark.parametrize("id", ["a/b", "-a", "", "x" * 201])
def test_id_is_that_which_is_given_if_a_run_can_have_it(id: str) -> None:
    assert Given(id="mine").run("shop") == "mine"
    if id:
        with pytest.raises(UsageError, match="cannot be a run id"):
            Given(id=id).run("shop")
    else:
        assert Given(id=id).run("shop").startswith("shop-")


def test_ctrl_c_while_a_run_starts_says_which_run_may_have_begun(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted:
        ensure_driver = staticmethod(lambda: None)

        def with_runs(self, _: object) -> None:
            raise KeyboardInterrupt

    prepared = SimpleNamespace(submission=SimpleNamespace(run="shop-1"))
    monkeypatch.setattr(run, "prepare_file", lambda *_: prepared)
    env: Any = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        run._start(env, Path("shop.yaml"), Given(), Starting())  # private: the parsed options, without a run
    assert "treadle show shop-1" in capsys.readouterr().err


def test_topics_are_read_once_for_all_letters_that_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Letter:
        def __init__(self, id: str) -> None:
            self.id = id

    asked = []

    def letters(*_: object) -> list[Letter]:
        asked.append(1)
        return [Letter(id) for id in "abc"]

    monkeypatch.setattr(Letters, "of", letters)
    found = Letters(object.__new__(Environment))
    assert [one.id for one in found.named(["c", "a"])] == ["c", "a"]
    assert len(asked) == 1
    with pytest.raises(MissingError, match="no dead letter d") as caught:
        found.named(["a", "d"])
    assert code_of(caught.value) == Exit.NOT_FOUND
