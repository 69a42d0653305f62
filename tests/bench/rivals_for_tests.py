"""Rivals for the runner's tests, in separate processes: one that answers, and some that fail."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]


class Rival:
    """Correct for the pipeline. Each other workload fails in its own way."""

    def __init__(self, sizes: Any, folder: Path) -> None:
        self._sizes = sizes

    def start(self) -> None:
        sys.stdout.write("what a library says when it begins")

    def stop(self) -> None: ...

    def prepare(self, workload: str) -> None: ...

    def after(self) -> None: ...

    def spent(self) -> dict[str, float]:
        return {}

    def pipeline(self, variant: str, target: Path) -> Any:
        return self._sizes.stages * self._sizes.width

    def fan_out(self, variant: str, target: Path) -> Any:
        return list(range(self._sizes.items - 1))

    def words(self, variant: str, target: Path) -> None:
        """Leaves an orphaned process behind, and hangs."""
        subprocess.Popen(SLEEPER, start_new_session=True)
        time.sleep(600)

    def sort(self, variant: str, target: Path) -> None:
        os._exit(3)
