"""What every level of the graph shares while a spec is planned."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from treadle.dsl.graph.graph import Graph
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
from .transport import Site

PlanChild = Callable[[str, WorkflowStage], Plan]
"""(stage, what it is) -> the plan of the workflow that it runs, as it would be now. Raises UsageError."""


class Planner:
    """What every level of the graph shares."""

    def __init__(
        self, spec: Spec, sources: Sources, functions: Decorators, site: Site, base: Path, plan_child: PlanChild
    ) -> None:
        self.spec, self.sources, self.functions, self.site, self.base = spec, sources, functions, site, base
        self.plan_child = plan_child
        self.inexact: list[str] = []
        self.document = Graph(spec)
        self.valued = valued_stages(spec)
        kept, self.not_kept = kept_stages(self.document, sources, functions)
        self._kept = {id(stage): kept[name] for name, stage in all_stages(spec.stages) if name in kept}
        self._order: dict[int, set[str]] = {}
        self._paths: dict[int, set[str]] = {}
        self._outermost = {id(stage) for stage in spec.stages.values()}

    def policy(self, stage: Settings) -> Policy:
        """Of a stage, or of a segment that is no stage's own."""
        decorated = decorated_settings(stage, self.functions)
        policy = policy_of(stage, self.spec.defaults, decorated, self.sources.count, self.site.default)
        policy = msgspec.structs.replace(policy, cache=self.kept(stage))
        if policy.cache is not None and id(stage) in self._outermost:  # another run finds it in the store only
            policy = msgspec.structs.replace(policy, durability=policy.durability or "segment")
        return within(policy, self.site.executors.get(policy.executor))

    def kept(self, stage: Stage | Settings) -> Kept | None:
        """How its result is kept for later runs; of a stage inside a loop, that of the loop."""
        return self._kept.get(id(stage))

    def is_single(self, given: object, user: str) -> bool:
        """Whether what stage `user` reads is one record."""
        return isinstance(given, str) and is_single(self.document, given, self.document.nodes[user].loops)

    def location(self, uri: str) -> str:
        """The absolute URI of a place to write to; empty where it is missing and may be."""
        return self.sources.if_there(lambda: absolute_uri(self.sources.text(uri), self.base), "")

    def order(self, stage: Stage) -> set[str]:
        """As `order_stages`, worked out once: a shuffle of many inputs asks for each of them."""
        if id(stage) not in self._order:
            self._order[id(stage)] = order_stages(stage)
        return self._order[id(stage)]

    def paths(self, stage: Stage) -> set[str]:
        """The dotted paths of `expression_paths`, worked out once."""
        if id(stage) not in self._paths:
            self._paths[id(stage)] = nested_paths(expression_paths(stage))
        return self._paths[id(stage)]

    def flat(self, stage: MapStage) -> bool:
        known = self.functions.get(stage.uses, {}).get("flat")
        return bool(known if stage.flat is None else stage.flat)
