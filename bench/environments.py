"""Makes the environment of Ray, Dask and the Redis client in BENCH_DIR/rivals, with fixed versions. Runs once.

python bench/environments.py
"""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
from pathlib import Path

from harness.settings import BENCH_DIR, RIVALS_PYTHON

PINS = (
    "ray==2.60.0",
    "dask==2026.8.0",
    "distributed==2026.8.0",
    "redis==8.1.0",
    "hiredis==3.5.0",
)
"""With numpy as in the project's own environment."""


def main() -> None:
    pins = [*PINS, f"numpy=={importlib.metadata.version('numpy')}"]
    ready = BENCH_DIR / "rivals" / "ready"
    if not ready.exists() or ready.read_text() != "\n".join(pins):
        uv = str(Path(sys.executable).with_name("uv"))
        environment = str(BENCH_DIR / "rivals")
        subprocess.check_call([uv, "venv", "--quiet", "--clear", "--python", sys.executable, environment])
        subprocess.check_call([uv, "pip", "install", "--quiet", "--python", str(RIVALS_PYTHON), *pins])
        ready.write_text("\n".join(pins))
    print("the rivals' environment is ready:", ", ".join(pins))
    if shutil.which("redis-server") is None:
        print("no redis-server on PATH: Redis will be left out (Debian: apt-get install redis-server)")


if __name__ == "__main__":
    main()
