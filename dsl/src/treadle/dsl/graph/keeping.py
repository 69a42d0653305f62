"""Which stages may be kept for later runs: those whose results are a function of code, parameters and inputs alone.

A stage that is kept is a promise about its own functions. So it may read only what is kept too: of a stage without that
promise nobody can say, before it ran, that it will give what it gave.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from ..model import BarrierStage, BroadcastStage, MapStage, ReduceStage, ShuffleStage, Stage, WorkStage
from ..templates import template_paths
from .graph import Graph, Node, ReferenceProblem, StateTarget, references_of

_ELSEWHERE = {"output", "failed_items", "when", "needs", "description"}
"""Keys of a stage that do not change its data."""
NOT_CACHED = "it is not cached"
_FAR = "it depends on "
_OF_A_RUN = {"run": "it is given `run.{}`, which differs from run to run", "secrets": "it is given a secret"}


class Keeping:
    """Why stages cannot be kept."""

    def __init__(self, graph: Graph, wanted: Collection[str], known: Mapping[str, str] | None = None) -> None:
        """`wanted`: ids of the stages that shall be kept; `known`: reasons that the document does not show, by id."""
        self._graph, self._wanted, self._known = graph, wanted, known or {}
        self._found: dict[str, str] = {}

    def why_not(self, name: str) -> str:
        """The reason, as a clause whose subject is the stage; empty: it can be kept."""
        if name not in self._found:
            self._found[name] = ""  # stages in a circle are refused elsewhere
            self._found[name] = self._reason(self._graph.nodes[name])
        return self._found[name]

    def _reason(self, node: Node) -> str:
        stage = node.stage
        if isinstance(stage, BarrierStage):
            return "its quorum may be met by others each time" if _is_partial(stage) else self._read(node)
        if not isinstance(stage, MapStage | ShuffleStage | BroadcastStage | ReduceStage):
            return f"a {stage.type} is not kept"
        if node.id not in self._wanted:
            return NOT_CACHED
        return self._own(node, stage) or self._known.get(node.id, "") or self._read(node)

    def _own(self, node: Node, stage: WorkStage) -> str:
        if node.loops:
            return f"it is inside the loop '{node.loops[-1]}'"
        barriers = [one.stage for one in self._graph.nodes.values() if isinstance(one.stage, BarrierStage)]
        if any(_is_partial(barrier) and barrier.input == node.id for barrier in barriers):
            return "the quorum of a barrier lets it go with a part"
        if not stage.idempotent:
            return "with `idempotent: false` it acts on the outside"
        if isinstance(stage, MapStage) and stage.tolerated_failures not in (None, 0, "0%"):
            return "the failures it tolerates may be others each time"
        return next((_OF_A_RUN[path[0]].format(path[-1]) for path in sorted(_paths(stage)) if path[0] in _OF_A_RUN), "")

    def _read(self, node: Node) -> str:
        for source in sorted(set(self._sources(node))):
            reason = self.why_not(source)
            if reason:
                return reason if reason.startswith(_FAR) else f"{_FAR}'{source}'{_about(reason)}"
        return ""

    def _sources(self, node: Node) -> Iterator[str]:
        """Stages whose data or values reach this one."""
        for _, reference in references_of(node.stage):
            try:
                target = self._graph.resolve(reference, node.loops)
            except ReferenceProblem:
                continue
            source = target.loop if isinstance(target, StateTarget) else self._graph.node_of(target)
            if source is not None:
                yield source.id
        named = {path[1] for path in _paths(node.stage) if path[0] == "stages" and len(path) > 1}
        yield from (name for name in named if name in self._graph.nodes)


def _about(reason: str) -> str:
    """The reason of another stage, after its name."""
    return f", which {reason.removeprefix('it ')}" if reason.startswith("it ") else f": {reason}"


def _is_partial(stage: Stage) -> bool:
    return isinstance(stage, BarrierStage) and float(stage.quorum.rstrip("%")) < 100


def _paths(stage: Stage) -> set[tuple[str, ...]]:
    """What the templates that make its data mention."""
    values = {key: value for key, value in stage.model_dump().items() if key not in _ELSEWHERE}
    return template_paths(values)
