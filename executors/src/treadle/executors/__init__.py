"""treadle's task runtime and the places where tasks run."""

from treadle.primitives.result import Result as Result

from .context import Context as Context
