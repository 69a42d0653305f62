"""The folder bench is not a package, so its modules are imported in the same way as its programs import them."""

from __future__ import annotations

import sys
from pathlib import Path

BENCH = Path(__file__).parents[2] / "bench"
sys.path += [str(BENCH), str(BENCH / "workloads" / "project")]
