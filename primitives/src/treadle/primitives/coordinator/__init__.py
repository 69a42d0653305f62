"""The coordinator of a gang: members and their leases, channels, barriers, tasks, and locations of blocks
(docs/coordinator.md).
"""

from .component import Limits, Timing
from .instructions import Close, Deliver, Instruction, Returned, Send
from .machine import Coordinator, Statistics
from .tree import Tree, children, depth, parent

__all__ = [
    "Close",
    "Coordinator",
    "Deliver",
    "Instruction",
    "Limits",
    "Returned",
    "Send",
    "Statistics",
    "Timing",
    "Tree",
    "children",
    "depth",
    "parent",
]
