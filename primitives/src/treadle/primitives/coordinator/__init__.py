"""The coordinator of a gang: members and their leases, channels, barriers, tasks, and locations of blocks
(docs/coordinator.md).
"""

from .component import CoordinatorLimits, Statistics, Timing
from .instructions import Deliver, Disconnect, Instruction, Returned, SendToConnection, StateSaved
from .machine import Coordinator
from .tree import Tree, children, depth, parent

__all__ = [
    "Coordinator",
    "CoordinatorLimits",
    "Deliver",
    "Disconnect",
    "Instruction",
    "Returned",
    "SendToConnection",
    "StateSaved",
    "Statistics",
    "Timing",
    "Tree",
    "children",
    "depth",
    "parent",
]
