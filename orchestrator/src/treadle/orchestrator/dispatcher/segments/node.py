"""The work of one activity for a node of the run's own graph: a segment, a task group or a loop."""

from __future__ import annotations

from treadle.primitives.errors import InternalError, StoreError, TreadleError

from ...plan.plan import LoopNode, Segment
from ...scheduler.instructions import Summary
from ..driver_context.run_context import RunContext
from ..ledger.ledger import Fenced
from ..orders import Orders
from .execute_segment import Desk, run_group, run_segment
from .failed_segment import SegmentFailed
from .loop import run_loop
from .wide_segment import Unclosed


async def run_node(
    run: RunContext, node: Segment | LoopNode, group: int, orders: Orders, desk: Desk
) -> Summary | Unclosed | None:
    """Finish the node, or a task group of it (-1: all), or find it finished. None: the group is closed.

    Raises SegmentFailed, BlocksLost, Stopped; Fenced, StoreError, InternalError.
    """
    try:
        if isinstance(node, LoopNode):
            return await run_loop(run, node, orders, desk)
        if group < 0:
            return await run_segment(run, node, orders, desk)
        await run_group(run, node, group, orders, desk)
        return None
    except (Fenced, StoreError, InternalError):
        raise
    except TreadleError as error:
        raise SegmentFailed.by(error, node.id) from error
