"""The conformance suite of executors: subclass `ExecutorTests` and provide your executor.

The modules that user code imports (`functions`, `script`) need neither pytest nor other parts of the suite.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.primitives.lazy_import import late

if TYPE_CHECKING:
    from .suite import ExecutorTests
    from .workbench import Workbench

__all__ = ["ExecutorTests", "Workbench"]
__getattr__ = late(__name__, {"ExecutorTests": ".suite", "Workbench": ".workbench"})
