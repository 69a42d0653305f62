"""For treadle's own tests: executes whole runs inside one process, without Temporal."""

from .engine import Engine as Engine
from .engine import EngineFailure as EngineFailure
from .engine import EngineResult as EngineResult
