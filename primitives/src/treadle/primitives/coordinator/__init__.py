"""Who takes part: members, their leases and channels, barriers, tasks, and where blocks are (docs/coordinator.md)."""

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
