"""treadle's task runtime, and the executors that run tasks."""

from typing import TYPE_CHECKING

from treadle.primitives.lazy_import import late
from treadle.primitives.result import Result as Result

from .context import Context as Context

if TYPE_CHECKING:
    from .isolated.executor import IsolatedExecutor as IsolatedExecutor
    from .local.executor import LocalExecutor as LocalExecutor

# Imported on first use: workers import this package too, and must start within milliseconds.
__getattr__ = late(__name__, {"LocalExecutor": ".local.executor", "IsolatedExecutor": ".isolated.executor"})
