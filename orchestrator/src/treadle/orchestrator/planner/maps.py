"""Map stages: one operation on the flow of their input, which is cut again first if `batch` requires it.

Gangs. Planning refuses a gang that could never start.
"""

from __future__ import annotations

from msgspec.structs import replace

from treadle.dsl.graph.requirements import stage_name
from treadle.dsl.model import MapStage, ReduceStage
from treadle.dsl.units import format_duration, parse_percentage
from treadle.executors.interface import Capabilities
from treadle.executors.program import Arg, Call, Cut, MapPartition, MapRecords, Value
from treadle.executors.resident.lifetime import GATHERING

from ..plan.plan import FilesFeed, NarrowFeed, Policy, Tolerance
from . import residency
from .lowering import Level
from .objects import used
from .pipeline import Pipeline
from .placement import PlacementRefused
from .sources import batched
from .transport import RunLocation


def check_gang(site: RunLocation, own: tuple[str, ...], size: int, flow: Pipeline) -> None:
    """Explain the gang of a stage. Raises PlacementRefused when its number of partitions is known to differ from
    `size`, or when that many cannot run together here. `own`: the path of the stage in the document."""
    policy = flow.policy or Policy()
    can = residency.gang_place(site, policy.executor)
    several = can.shares_host and site.peers and size > can.slots
    if refused := _why_not(policy, can, size, flow, site.lent or size if several else can.slots):
        key, text, hint = refused
        raise PlacementRefused(f"{own[-1]}: {text}", hint, (*own, key), ("defaults", key), own)
    together, limit = f"a gang: its {size} partitions run together, each in a", format_duration(GATHERING)
    if can.sizes:
        flow.reasons.append(f"{together} function of its own, or none, if not all have started after {limit}")
    elif several:
        others = f"{can.slots} here, the rest on other hosts"
        flow.reasons.append(f"{together} slot of its own ({others}), or none, if not all are idle after {limit}")
    else:
        flow.reasons.append(f"{together} slot of its own, or not at all")


def _why_not(policy: Policy, can: Capabilities, size: int, flow: Pipeline, most: int) -> tuple[str, str, str] | None:
    """The key of the stage that stands against the gang, the reason, and a hint. `most`: the slots that it may take."""
    if flow.partitions and flow.partitions != size:
        count = f"{flow.partitions} partition{'s' * (flow.partitions != 1)}"
        return "gang", f"its input has {count}, and `gang: {size}` needs exactly {size}", _hint(flow, size)
    if not can.gangs:
        text = "workers of this executor cannot connect to each other, and a gang is made of connections"
        if can.sizes:
            text = f"functions of {policy.executor} have no coordinator to join, and a gang meets at one"
        hint = "Give the table of Lambda or OpenWhisk `members` (docs/members.md), or use the local executor."
        return "executor", text, hint
    if size > most:
        return "gang", *_too_few(size, most, can, policy.executor)
    if 0 < can.time_limit < policy.timeout:
        limit, asked = format_duration(can.time_limit), format_duration(policy.timeout)
        stays = f"a gang on {policy.executor} runs in functions that stay; each works for {limit}"
        hint = f"Give at most `timeout: {limit}`, or use the local executor."
        return "timeout", f"{stays}, and `timeout` is {asked}", hint
    if 0 < policy.max_concurrency < size:
        text = f"`gang: {size}` needs {size} slots at once, and maxConcurrency is {policy.max_concurrency}"
        return "maxConcurrency", text, f"Give maxConcurrency {size} or more."
    return None


def _too_few(size: int, most: int, can: Capabilities, executor: str) -> tuple[str, str]:
    if can.sizes:
        return (
            f"`gang: {size}` needs {size} functions at once, and `concurrency` of {executor} is {most}",
            f"Set `concurrency = {size}` in its table, if the account allows that many, or write a smaller gang.",
        )
    if most > can.slots:
        return (
            f"`gang: {size}` needs {size} slots at once, and all drivers of this queue together have {most}",
            "Start more drivers, or drivers with more slots (`treadle worker --max-tasks`), or write a smaller gang.",
        )
    return (
        f"`gang: {size}` needs {size} slots at once, and there are {most}",
        f"Set `slots = {size}` in a profile (profiles.toml; the default is one for each processor), or start "
        f"`treadle worker --max-tasks {size}`, or give each driver `peers`, so that they lend each other slots, or "
        "write a smaller gang.",
    )


def _hint(flow: Pipeline, size: int) -> str:
    if isinstance(flow.feed, FilesFeed):
        return f"Write `gang: {flow.partitions}`, choose another `split`, or shuffle to `partitions: {size}` before it."
    return f"Write `gang: {flow.partitions}`, or `partitions: {size}` where the partitions are made."


def call(function: str, stage: MapStage | ReduceStage) -> Call:
    """A call whose arguments keep their templates. They are resolved when the segment starts."""
    args: dict[str, Arg] = {name: Value(value) for name, value in stage.with_.items()}
    return Call(function, args, used(stage))


def map_flow(level: Level, name: str, stage: MapStage) -> Pipeline:
    tolerance = _tolerance(level, stage)
    flow = _batched(level, name, stage) if stage.batch else level.join(stage.input, name, stage, tolerance)
    _keep_unparsable(flow, stage)
    if stage.gang is not None and not level.planner.sources.excuse:
        check_gang(level.planner.site, (*level.path, "stages", name), stage.gang, flow)
    flow.ops.append(_operation(level, name, stage))
    flow.metrics[name] = dict(stage.metrics)
    if tolerance is not None:
        flow.tolerated[name] = tolerance
        if tolerance.count > 0 or tolerance.percent > 0:
            level.planner.inexact.append(f"{name}: toleratedFailures {stage.tolerated_failures}")
    return flow


def _operation(level: Level, name: str, stage: MapStage) -> MapRecords | MapPartition:
    function = call(stage.uses, stage)
    flat = level.planner.flat(stage)
    tolerate = stage.tolerated_failures is not None
    refused = level.planner.policy(stage).non_retryable
    metrics: dict[str, str] = dict(stage.metrics)
    if stage.per == "partition":
        return MapPartition(name, function, flat, stage.whole, tolerate, refused, metrics)
    return MapRecords(name, function, flat, tolerate, refused, metrics)


def _tolerance(level: Level, stage: MapStage) -> Tolerance | None:
    given = stage.tolerated_failures
    if given is None:
        return None
    uri = level.planner.location(stage.failed_items.uri) if stage.failed_items else ""
    if isinstance(given, int):
        return Tolerance(count=given, failed_items=uri)
    return Tolerance(percent=parse_percentage(given), failed_items=uri)


def _keep_unparsable(flow: Pipeline, stage: MapStage) -> None:
    """If a tolerant map reads files itself, lines that cannot be parsed count as failed records."""
    if stage.tolerated_failures is not None and isinstance(flow.feed, FilesFeed) and not flow.ops:
        kept = (replace(split, options=replace(split.options, tolerate=True)) for split in flow.feed.splits)
        flow.feed = FilesFeed(tuple(kept))


def _batched(level: Level, name: str, stage: MapStage) -> Pipeline:
    assert stage.batch is not None
    flow = _to_cut(level, name, stage)
    _keep_unparsable(flow, stage)
    static = None if flow.ops else batched(flow.feed, stage.batch, level.planner.sources.count)
    if static is not None:
        flow.feed, flow.partitions = static
    else:
        items = level.planner.sources.count(stage.batch.max_items) if stage.batch.max_items is not None else 0
        dataset = level.add(flow, f"{name}.cut", Cut(items, stage.batch.max_bytes or 0), "cut")
        flow = Pipeline(NarrowFeed(dataset.ref), 0, dataset.estimate, data=set(dataset.nodes))
        flow.reasons.append(f"{name} has its own partitions: {name}.cut re-cuts its input")
    level.require(flow, name, stage)
    return flow


def _to_cut(level: Level, name: str, stage: MapStage) -> Pipeline:
    """The flow to cut again: the producer's own while it is open, otherwise a new one."""
    producer = stage_name(stage.input) if isinstance(stage.input, str) else None
    flow = level.take_open(producer)
    if flow is None:
        flow = level.read(stage.input, name)
        level.make_ready(flow, stage)
    return flow
