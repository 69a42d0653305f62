"""What one activity does for a node of the run's own graph, whatever the node is."""

from __future__ import annotations

from treadle.primitives.errors import InternalError, StoreError, TreadleError

from ...instructions import Summary
from ...plan import Loop, Segment
from ..orders import Orders
from ..record.ledger import Fenced
from ..site.run import Run
from .endings import SegmentFailed
from .execute import Desk, run_group, run_segment
from .loop import run_loop
from .wide import Unclosed


async def run_node(run: Run, node: Segment | Loop, group: int, orders: Orders, desk: Desk) -> Summary | Unclosed | None:
    """Finish the node, or a task group of it (-1: all), or find it finished; None: the group is closed.

    Raises SegmentFailed, BlocksLost, Stopped; Fenced, StoreError, InternalError.
    """
    try:
        if isinstance(node, Loop):
            return await run_loop(run, node, orders, desk)
        if group < 0:
            return await run_segment(run, node, orders, desk)
        await run_group(run, node, group, orders, desk)
        return None
    except (Fenced, StoreError, InternalError):
        raise
    except TreadleError as error:
        raise SegmentFailed.by(error, node.id) from error
