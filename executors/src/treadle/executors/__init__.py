"""The names that functions use (`Context`, `Result`), and the interface of executors (docs/plugins.md).

An executor of your own is an `ExecutorKind`, named by an entry point. Its `Executor` gives a `Slot` for each task that
runs at the same time. For a system that only takes bytes and returns bytes, an `Invoker` is enough: `FunctionExecutor`
calls it, and a `Handler` serves the calls on the other side.
"""

from typing import TYPE_CHECKING

from treadle.primitives.lazy_import import late
from treadle.primitives.result import Result

from .context import Context

if TYPE_CHECKING:
    from .function_handler import Handler
    from .functions.executor import FunctionExecutor
    from .functions.invoker import Answer, Invoker, Limits, NotRun, Throttled
    from .interface import Capabilities, Executor, Slot
    from .plugin import ExecutorKind, Place, convert_table
    from .program import Failure, Outcome, Task

# Imported on first use: workers import this package too, and must start within milliseconds.
__getattr__ = late(
    __name__,
    {
        "Handler": ".function_handler",
        "FunctionExecutor": ".functions.executor",
        **dict.fromkeys(("Answer", "Invoker", "Limits", "NotRun", "Throttled"), ".functions.invoker"),
        **dict.fromkeys(("Capabilities", "Executor", "Slot"), ".interface"),
        **dict.fromkeys(("ExecutorKind", "Place", "convert_table"), ".plugin"),
        **dict.fromkeys(("Failure", "Outcome", "Task"), ".program"),
    },
)

__all__ = [
    "Answer",
    "Capabilities",
    "Context",
    "Executor",
    "ExecutorKind",
    "Failure",
    "FunctionExecutor",
    "Handler",
    "Invoker",
    "Limits",
    "NotRun",
    "Outcome",
    "Place",
    "Result",
    "Slot",
    "Task",
    "Throttled",
    "convert_table",
]
