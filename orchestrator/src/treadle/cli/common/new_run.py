"""A run that is to start: the options that describe it, and its preparation from a file or a deployed workflow."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .environment import Environment
from .options import ExecutorOption, InputOption, InputsOption, read_inputs

if TYPE_CHECKING:
    from treadle.client.submission import Prepared
    from treadle.orchestrator.planner import RunLocation


@dataclass(frozen=True)
class Given:
    """The options that describe a new run."""

    input: InputOption = None
    inputs: InputsOption = None
    id: Annotated[str | None, typer.Option("--id", metavar="RUN", help="Run id; default: generated.")] = None
    executor: ExecutorOption = None

    def values(self) -> dict[str, Any]:
        """The values of the workflow's inputs. Raises UsageError."""
        return read_inputs(self.input, self.inputs)

    def run(self, workflow: str) -> str:
        """The run id. Raises UsageError for an invalid one."""
        from treadle.client.submission import run_id

        return run_id(self.id, workflow, "--id")


def prepare_file(env: Environment, file: Path, given: Given, site: RunLocation | None = None) -> Prepared:
    """Check and plan without starting. Raises InvalidDocument, InvalidInputs, UsageError.

    `site` replaces the resources of the profile.
    """
    from treadle.client.documents import load_checked
    from treadle.client.preparation import prepare_document

    loaded = load_checked(file)
    return prepare_document(env, loaded, given.values(), given.run(loaded.spec.name), given.executor, site)


def prepare_deployed(env: Environment, name: str, given: Given) -> Prepared:
    """Prepare a run of a deployed workflow: its code comes from the registry, nothing is imported here.

    Raises NoSuchDeployment, InvalidInputs, UsageError.
    """
    from msgspec.structs import replace

    from treadle.client.submission import on_executor, planned
    from treadle.triggers.registry.registry import NoSuchDeployment, parse_name

    try:
        deployment = env.registry.deployment(*parse_name(name))
    except NoSuchDeployment as error:
        if meant := _with_ending(Path(name)):
            raise NoSuchDeployment(error.message, f"For the file {meant} write its ending too.") from error
        raise
    submission = deployment.submission(given.run(deployment.workflow), given.values())
    submission = on_executor(submission, given.executor)
    submission = replace(submission, shared=env.registry.shared(deployment))
    return planned(submission, env.registry.bundle(deployment), env.plan_site())


def _with_ending(text: Path) -> str:
    """The file with this name plus an ending, if there is one; otherwise an empty text."""
    found = [each for ending in (".yaml", ".yml", ".py") if (each := text.with_name(text.name + ending)).is_file()]
    return str(found[0]) if found else ""


def is_deployed(text: Path) -> bool:
    """Whether the argument names a deployed workflow: a file has an ending, or exists."""
    import re

    return bool(re.fullmatch(r"[a-z][A-Za-z0-9_]*(@.*)?", str(text))) and not text.exists()
