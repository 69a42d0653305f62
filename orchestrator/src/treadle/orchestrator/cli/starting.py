"""run, submit, resume: from a file to a run under way."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from .environment import Environment
from .exits import CommandFailed, Exit, reported
from .options import FileArgument, IdOption, IfExistsOption, InputOption, InputsOption, ProfileOption, RunArgument


def read_inputs(pairs: Sequence[str], file: Path | None) -> dict[str, Any]:
    """`-i k=v` over the values of `--inputs FILE`."""
    from treadle.dsl.yaml_loader import load_yaml

    given: dict[str, Any] = {}
    if file is not None:
        try:
            known = load_yaml(file.read_text("utf-8")).data
        except OSError as error:
            raise CommandFailed(Exit.USAGE, f"--inputs {file}: {error.strerror}", "Check the name.") from error
        if not isinstance(known, dict):
            raise CommandFailed(Exit.USAGE, f"--inputs {file} holds no mapping", "Write `name: value` lines.")
        given |= known
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator:
            raise CommandFailed(Exit.USAGE, f"-i {pair}: write -i name=value", "")
        given[name] = value
    return given


def prepare_file(env: Environment, file: Path, pairs: Sequence[str], inputs: Path | None, run: str | None) -> Any:
    """Everything checked and planned, nothing started."""
    from treadle.dsl.validate_inputs import resolve_inputs

    from ..submission import new_run_id, prepare
    from .documents import load_checked

    loaded = load_checked(file)
    return prepare(
        loaded.spec,
        resolve_inputs(loaded.spec, read_inputs(pairs, inputs)),
        run=run or new_run_id(loaded.spec.name),
        base=loaded.base,
        roots=[loaded.base],
        captured=loaded.captured,
        site=env.plan_site(),
    )


def submit_prepared(env: Environment, prepared: Any, if_exists: Literal["fail", "use", "terminate"]) -> str:
    env.ensure_driver()
    env.with_runs(lambda runs: runs.submit(prepared, if_exists=if_exists))
    run: str = prepared.submission.run
    return run


def submit(
    file: FileArgument,
    input: InputOption = [],  # noqa: B006
    inputs: InputsOption = None,
    id: IdOption = None,
    if_exists: IfExistsOption = "fail",
    profile: ProfileOption = None,
) -> None:
    """Start a run and print its id."""
    with reported():
        env = Environment(profile)
        typer.echo(submit_prepared(env, prepare_file(env, file, input, inputs, id), if_exists))


def run(
    file: FileArgument,
    input: InputOption = [],  # noqa: B006
    inputs: InputsOption = None,
    id: IdOption = None,
    if_exists: IfExistsOption = "fail",
    profile: ProfileOption = None,
) -> None:
    """Start a run and watch it to its end."""
    from .watching import watch_run

    with reported():
        env = Environment(profile)
        name = submit_prepared(env, prepare_file(env, file, input, inputs, id), if_exists)
        print(f"run {name}", file=sys.stderr)  # noqa: T201
        watch_run(env, name)


def resume(
    run: RunArgument,
    assume: Annotated[str, typer.Option(help="What happened to attempts of unknown outcome: done or retry.")] = "",
    detach: Annotated[bool, typer.Option("--detach", help="Do not watch.")] = False,
    profile: ProfileOption = None,
) -> None:
    """Go on with a run: one that failed, was cancelled or timed out, or one whose driver is dead."""
    from .watching import watch_run

    with reported():
        env = Environment(profile)
        env.ensure_driver()
        env.with_runs(lambda runs: runs.resume(run, assume=assume))
        if not detach:
            watch_run(env, run)
