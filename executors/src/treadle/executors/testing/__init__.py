"""The conformance suite of executors: subclass `ExecutorTests` and give it your executor.

What user code imports from here (`functions`, `script`) needs neither pytest nor anything else of the suite.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .suite import ExecutorTests as ExecutorTests
    from .workbench import Place as Place
    from .workbench import Workbench as Workbench

_WHERE = {"ExecutorTests": "suite", "Place": "workbench", "Workbench": "workbench"}
__all__ = ["ExecutorTests", "Place", "Workbench"]


def __getattr__(name: str) -> Any:
    """Import on first use (PEP 562)."""
    if name not in _WHERE:
        raise AttributeError(name)
    from importlib import import_module

    return getattr(import_module(f".{_WHERE[name]}", __name__), name)
