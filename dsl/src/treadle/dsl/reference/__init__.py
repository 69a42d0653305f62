"""The reference interpreter: docs/semantics.md as code, in memory, one partition after the other.

It defines the result that every executor, transport and width must give, so it is written to be clearly correct rather
than fast. Keys, hashes, order, partition bounds and seeds come from treadle.primitives. Everything else is implemented
again here, independently of the task runtime.

Layout: `data` (partitions and records), `sources` (inputs), `calls` (user functions, attempts, metrics), `maps`,
`shuffles`, `reduces` (one stage type each), `run` (the context of all stages), `loops`, `interpreter` (stages on
demand, skips, outputs). `sessions` defines the calls of a session, which belong to no workflow.
"""

from .calls import ReferenceFailure
from .data import ReferencePartition
from .interpreter import run_reference
from .run import ReferenceResult

__all__ = ["ReferenceFailure", "ReferencePartition", "ReferenceResult", "run_reference"]
