"""The reference interpreter: docs/semantics.md as code, in memory, one partition after the other.

It is the definition that every executor, transport and width must agree with, so it is written to be obviously right
rather than fast. Keys, hashes, order, partition bounds and seeds come from treadle.primitives; everything else stands
here once more, independently of the task runtime.

General layout: `data` (partitions and records), `sources` (inputs), `calls` (user functions, attempts, metrics),
`maps`, `shuffles`, `reduces` (one stage each), `run` (what all of them may ask for), `loops`, `interpreter` (stages on
demand, skips, outputs).
"""

from .calls import ReferenceFailure as ReferenceFailure
from .data import Partition as Partition
from .interpreter import run_reference as run_reference
from .run import ReferenceResult as ReferenceResult
