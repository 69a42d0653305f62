"""The state that all levels of the graph share during planning."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from treadle.dsl.graph.graph import StageGraph
from treadle.dsl.graph.partition_kinds import is_single
from treadle.dsl.graph.requirements import expression_paths, order_stages
from treadle.dsl.graph.stages import all_stages, valued_stages
from treadle.dsl.model import MapStage, Settings, Spec, Stage, WorkflowStage
from treadle.primitives.stores.input_files import absolute_uri

from ..plan.plan import Kept, Plan, Policy
from .cacheability import kept_stages
from .pipeline import nested_paths
from .placement import within
from .settings import Decorators, decorated_settings, policy_of
from .sources import Sources
from .transport import RunLocation

PlanChild = Callable[[str, WorkflowStage], Plan]
"""(stage name, stage) -> the plan that the stage's workflow would have now. Raises UsageError."""


class Planner:
    """The state that all levels of the graph share."""

    def __init__(
        self, spec: Spec, sources: Sources, functions: Decorators, site: RunLocation, base: Path, plan_child: PlanChild
    ) -> None:
        self.spec, self.sources, self.functions, self.site, self.base = spec, sources, functions, site, base
        self.plan_child = plan_child
        self.inexact: list[str] = []
        self.document = StageGraph(spec)
        self.valued = valued_stages(spec)
        kept, self.not_kept = kept_stages(self.document, sources, functions)
        self._kept = {id(stage): kept[name] for name, stage in all_stages(spec.stages) if name in kept}
        self._order: dict[int, set[str]] = {}
        self._paths: dict[int, set[str]] = {}
        self._outermost = {id(stage) for stage in spec.stages.values()}

    def policy(self, stage: Settings) -> Policy:
        """The policy of a stage, or of a segment that belongs to no stage."""
        decorated = decorated_settings(stage, self.functions)
        policy = policy_of(stage, self.spec.defaults, decorated, self.sources.count, self.site.default)
        policy = msgspec.structs.replace(policy, cache=self.kept(stage))
        if policy.cache is not None and id(stage) in self._outermost:  # another run finds the result in the store only
            policy = msgspec.structs.replace(policy, durability=policy.durability or "segment")
        return within(policy, self.site.executors.get(policy.executor))

    def kept(self, stage: Stage | Settings) -> Kept | None:
        """The cache settings of the stage's result. A stage inside a loop has the loop's settings."""
        return self._kept.get(id(stage))

    def is_single(self, given: object, user: str) -> bool:
        """Returns whether the input of stage `user` is a single record."""
        return isinstance(given, str) and is_single(self.document, given, self.document.nodes[user].loops)

    def location(self, uri: str) -> str:
        """The absolute URI of an output place. Empty: it has no value, and needs none."""
        return self.sources.if_there(lambda: absolute_uri(self.sources.text(uri), self.base), "")

    def order(self, stage: Stage) -> set[str]:
        """`order_stages`, computed once, since a shuffle of many inputs needs it for each of them."""
        if id(stage) not in self._order:
            self._order[id(stage)] = order_stages(stage)
        return self._order[id(stage)]

    def paths(self, stage: Stage) -> set[str]:
        """The dotted paths of `expression_paths`, computed once."""
        if id(stage) not in self._paths:
            self._paths[id(stage)] = nested_paths(expression_paths(stage))
        return self._paths[id(stage)]

    def flat(self, stage: MapStage) -> bool:
        known = self.functions.get(stage.uses, {}).get("flat")
        return bool(known if stage.flat is None else stage.flat)
