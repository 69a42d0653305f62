"""The folder bench is no package: its modules are found as its programs find them."""

from __future__ import annotations

import sys
from pathlib import Path

BENCH = Path(__file__).parents[2] / "bench"
sys.path += [str(BENCH), str(BENCH / "workloads" / "project")]
