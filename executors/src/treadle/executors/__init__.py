"""treadle's task runtime and the places where tasks run."""

from typing import TYPE_CHECKING, Any

from treadle.primitives.result import Result as Result

from .context import Context as Context

if TYPE_CHECKING:
    from .isolated.executor import IsolatedExecutor as IsolatedExecutor
    from .local.executor import LocalExecutor as LocalExecutor

_EXECUTORS = {"LocalExecutor": "local.executor", "IsolatedExecutor": "isolated.executor"}


def __getattr__(name: str) -> Any:
    """Import executors on first use (PEP 562): workers import this package too, and must be ready in milliseconds."""
    if name not in _EXECUTORS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_EXECUTORS[name]}", __name__), name)
