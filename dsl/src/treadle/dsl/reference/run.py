"""The context of a run's stages: the document, its inputs, and the results so far."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from treadle.primitives.errors import UsageError

from ..expressions import evaluate, parse
from ..graph.graph import StageGraph
from ..graph.stages import valued_stages
from ..model import Spec
from ..templates import render
from .calls import ReferenceFailure
from .data import ReferencePartition, records
from .objects import ReferenceObjects
from .scopes import FinishedStage, Frame, LazyStages


@dataclass
class ReferenceResult:
    """All results of a run. Names of stages inside a loop include the iteration, such as `lloyd[3].assign`."""

    datasets: dict[str, list[ReferencePartition]] = field(default_factory=dict)
    metrics: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Declared metrics; a loop has `iterations`; null for skipped stages."""
    outputs: dict[str, Any] = field(default_factory=dict)
    skipped: set[str] = field(default_factory=set)
    failed_items: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """The failed items of each tolerant stage, in input order; `record` is the record itself, not its JSON."""
    written_parts: dict[str, list[bytes]] = field(default_factory=dict)
    """The files of stages with an `output`, one for each partition; for a stage in a loop the files of the last
    iteration.
    """
    children: dict[str, ReferenceResult] = field(default_factory=dict)
    """The results of sub-workflows, by stage."""

    def records(self, stage: str) -> list[Any]:
        """The records of a stage in order: Python objects, a dictionary for each row of a table, or a row for each row
        of an array."""
        return [record for partition in self.datasets[stage] for record in records(partition)]


class ReferenceRun(ABC):
    """The context that every stage uses."""

    def __init__(
        self,
        spec: Spec,
        env: Mapping[str, Any],
        functions: Callable[[str], Callable[..., Any]],
        base: Path | None,
        secrets: Mapping[str, str],
    ) -> None:
        self.spec, self.base, self.functions, self.secrets = spec, base, functions, secrets
        self.fixed_env = env
        self.graph = StageGraph(spec)
        self.valued = valued_stages(spec)
        self.result = ReferenceResult()
        self.objects = ReferenceObjects()

    @abstractmethod
    def stage(self, name: str, frame: Frame) -> FinishedStage | None:
        """Return the stage's result as seen from `frame`, and run it if necessary. None: it is skipped."""

    # -- the environment of expressions

    def fixed(self, value: Any) -> Any:
        """Return a value known when the run is planned: templates over `inputs` and `run`."""
        return render(value, self.fixed_env)

    def number(self, value: int | str, least: int = 1) -> int:
        """Return a whole number known when the run is planned. Raises UsageError for any other value, or a
        smaller one.
        """
        found = self.fixed(value)
        if isinstance(found, bool) or not isinstance(found, int) or found < least:
            raise UsageError(f"{value} gives {found!r}, and a whole number of at least {least} is needed here")
        return found

    def env(self, frame: Frame) -> dict[str, Any]:
        names = [node.id for node in self.graph.nodes.values() if frame.loops[: len(node.loops)] == node.loops]
        stages = LazyStages(lambda name: self.stage(name, frame), names)
        return {**self.fixed_env, "stages": stages, "state": frame.all_scalars()}

    def condition(self, text: str, env: Mapping[str, Any], path: str) -> bool:
        """Evaluate `when` or `until`. Raises ReferenceFailure unless it is true or false."""
        try:
            verdict = evaluate(parse(text), env)
            if not isinstance(verdict, bool):
                raise UsageError(f"`{text}` gives {verdict!r}, not true or false")
        except UsageError as error:
            raise ReferenceFailure(path, None, error) from error
        return verdict
