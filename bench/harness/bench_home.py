"""A home of treadle for a benchmark."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home


@contextmanager
def bench_home(profiles: str) -> Iterator[Home]:
    """A home with these profiles. At the end of the block its driver ends, and its files and shared memory go."""
    home = Home(Path(tempfile.mkdtemp(prefix="treadle-bench-")))
    home.profiles.write_text(profiles)
    try:
        yield home
    finally:
        embedded.down(home)
        shutil.rmtree(home.host_root, ignore_errors=True)
        shutil.rmtree(home.path)
