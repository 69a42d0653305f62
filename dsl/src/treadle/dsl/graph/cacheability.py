"""Decides which stages may be cached: those whose results depend only on code, parameters and inputs.

`cache` on a stage is a promise about its own functions. So a cached stage may read only cached stages: a stage without
that promise may give another result each time. A loop is cached as a whole, if everything in it can be.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from ..model import BarrierStage, LoopStage, MapStage, Stage, WorkStage
from ..templates import condition_paths, mentioned
from ..units import parse_percentage
from .graph import Node, StageGraph, StageTarget, StateTarget, references_of
from .objects import used_objects
from .requirements import needs_first

_ELSEWHERE = {"output", "failed_items", "when", "needs", "description"}
"""Keys of a stage that do not change its data."""
NOT_CACHED = "it is not cached"
_FAR = "it depends on "
_OF_A_RUN = {"run": "it is given `run.{}`, which differs from run to run", "secrets": "it is given a secret"}


class Keeping:
    """The reasons why stages cannot be cached."""

    def __init__(self, graph: StageGraph, wanted: Collection[str], known: Mapping[str, str] | None = None) -> None:
        """`wanted`: ids of the stages to cache. `known`: reasons that the document does not show, by id."""
        self._graph, self._wanted, self._known = graph, wanted, known or {}
        self._found: dict[str, str] = {}
        barriers = [node.stage for node in graph.nodes.values() if isinstance(node.stage, BarrierStage)]
        self._partly_read = {barrier.input for barrier in barriers if _is_partial(barrier)}
        for name in needs_first({name: self._before(node) for name, node in graph.nodes.items()}):
            self._found[name] = self._reason(graph.nodes[name])

    def why_not(self, name: str) -> str:
        """Return the reason, as a clause whose subject is the stage; empty: it can be cached."""
        return self._found.get(name, "")  # missing only for stages in a cycle, which another check refuses

    def _before(self, node: Node) -> list[str]:
        """Return the stages whose reasons may apply to this stage."""
        if node.loops:
            return [node.loops[0]]
        return [source for one in (node, *self._within(node)) for source in self._sources(one)]

    def _within(self, node: Node) -> list[Node]:
        loop = isinstance(node.stage, LoopStage)
        return [one for one in self._graph.nodes.values() if node.id in one.loops] if loop else []

    def _reason(self, node: Node) -> str:
        reason = self._alone(node)
        if reason:
            return reason
        if node.loops:
            return self._of_loop(node.loops[0])
        return self._inside(node) if isinstance(node.stage, LoopStage) else self._read(node)

    def _of_loop(self, loop: str) -> str:
        reason = self.why_not(loop)
        return f"it is inside the loop '{loop}'{_about(reason)}" if reason else ""

    def _inside(self, loop: Node) -> str:
        """Return why a loop cannot be cached: a stage in it, or one of its sources outside, prevents it."""
        inner = self._within(loop)
        for node in inner:
            reason = self._alone(node)
            if reason:
                return f"it holds '{node.id}'{_about(reason)}"
        own = {loop.id, *(node.id for node in inner)}
        return next((reason for node in (loop, *inner) if (reason := self._read(node, own))), "")

    def _alone(self, node: Node) -> str:
        """Return the reason that lies in the stage itself."""
        stage = node.stage
        if isinstance(stage, BarrierStage):
            return "its quorum may be met by others each time" if _is_partial(stage) else ""
        if isinstance(stage, LoopStage):
            return _given(_paths(stage) | _conditions(stage))
        if not isinstance(stage, WorkStage):
            return f"a {stage.type} is not kept"
        if node.id not in self._wanted:
            return NOT_CACHED
        return self._own(node, stage) or self._known.get(node.id, "")

    def _own(self, node: Node, stage: WorkStage) -> str:
        if node.id in self._partly_read:
            return "the quorum of a barrier lets it go with a part"
        if not stage.idempotent:
            return "with `idempotent: false` it acts on the outside"
        if isinstance(stage, MapStage) and stage.tolerated_failures not in (None, 0, "0%"):
            return "the failures it tolerates may be others each time"
        if used_objects(stage):
            return "it uses a shared object"
        return _given(_paths(stage))

    def _read(self, node: Node, own: Collection[str] = ()) -> str:
        """Return the reason that lies in a source other than `own`."""
        for source in sorted(set(self._sources(node)) - set(own)):
            reason = self.why_not(source)
            if reason:
                return reason if reason.startswith(_FAR) else f"{_FAR}'{source}'{_about(reason)}"
        return ""

    def _sources(self, node: Node) -> Iterator[str]:
        """Yield the stages whose data or values reach this stage."""
        for _, reference in references_of(node.stage):
            target = self._graph.find(reference, node.loops)
            if isinstance(target, StateTarget):
                yield target.loop.id
            elif isinstance(target, StageTarget):
                yield target.node.id
        decide = _conditions(node.stage) if isinstance(node.stage, LoopStage) else set()
        named = {path[1] for path in _paths(node.stage) | decide if path[0] == "stages" and len(path) > 1}
        yield from (name for name in named if name in self._graph.nodes)


def _about(reason: str) -> str:
    """Format the reason of another stage, to follow its name."""
    return f", which {reason.removeprefix('it ')}" if reason.startswith("it ") else f": {reason}"


def _given(paths: set[tuple[str, ...]]) -> str:
    return next((_OF_A_RUN[path[0]].format(path[-1]) for path in sorted(paths) if path[0] in _OF_A_RUN), "")


def _conditions(loop: LoopStage) -> set[tuple[str, ...]]:
    """Return the paths of conditions inside a loop; a condition elsewhere does not change the data."""
    texts = (loop.until, *(stage.when for stage in loop.stages.values()))
    return set[tuple[str, ...]]().union(*map(condition_paths, texts))


def _is_partial(stage: Stage) -> bool:
    return isinstance(stage, BarrierStage) and parse_percentage(stage.quorum) < 100


def _paths(stage: Stage) -> set[tuple[str, ...]]:
    """Return the paths in the templates that determine the stage's data."""
    values = stage.model_dump(exclude=_ELSEWHERE).values()
    return set[tuple[str, ...]]().union(*map(mentioned, values))
