"""Gangs. Planning refuses a gang that could never start."""

from __future__ import annotations

from treadle.primitives.errors import UsageError

from ..plan.plan import FilesFeed, Policy
from .pipeline import Pipeline
from .transport import RunLocation


def check_gang(site: RunLocation, name: str, size: int, flow: Pipeline) -> None:
    """Explain the gang of stage `name`. Raises UsageError when its number of partitions is known to differ from `size`,
    or when that many cannot run together here."""
    policy = flow.policy or Policy()
    can = site.executors[policy.executor]
    if flow.partitions and flow.partitions != size:
        count = f"{flow.partitions} partition{'s' * (flow.partitions != 1)}"
        raise UsageError(f"{name}: its input has {count}, and `gang: {size}` needs exactly {size}", _hint(flow, size))
    if not can.gangs:
        raise UsageError(
            f"{name}: workers of this executor cannot connect to each other, and a gang is made of connections",
            "Let a shuffle, broadcast or reduce move the data, or use the local executor.",
        )
    if size > can.slots:
        raise UsageError(
            f"{name}: `gang: {size}` needs {size} slots at once, and there are {can.slots}",
            f"Set `slots = {size}` in a profile (profiles.toml; the default is one for each processor), or start "
            f"`treadle worker --max-tasks {size}`, or write a smaller gang.",
        )
    if 0 < policy.max_concurrency < size:
        raise UsageError(
            f"{name}: `gang: {size}` needs {size} slots at once, and maxConcurrency is {policy.max_concurrency}",
            f"Give maxConcurrency {size} or more.",
        )
    flow.reasons.append(f"a gang: its {size} partitions run together, each in a slot of its own, or not at all")


def _hint(flow: Pipeline, size: int) -> str:
    if isinstance(flow.feed, FilesFeed):
        return f"Write `gang: {flow.partitions}`, choose another `split`, or shuffle to `partitions: {size}` before it."
    return f"Write `gang: {flow.partitions}`, or `partitions: {size}` where the partitions are made."
