"""Makes the environments of the rivals in BENCH_DIR, with fixed versions. Runs once. Failing environments are left out.

python -m workloads.environments     (in the folder bench)
"""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.settings import BENCH, BENCH_DIR

from workloads.settings import LIBRARIES

PINS = {
    "libraries": ("duckdb==2.0.0", "polars==2.1.0"),
    "spark": ("pyspark==4.3.0",),
    "lithops": ("lithops==3.8.0", "redis==8.1.0", "scikit-learn==1.9.1", "pandas==2.3.3", "pandarallel==1.6.5"),
}
"""Spark and Lithops with NumPy as in the project's own environment."""
_UV = str(Path(sys.executable).with_name("uv"))


def make() -> dict[str, str]:
    """Environment -> the reason why it is missing. Empty: all exist."""
    found = {"rivals": _done([sys.executable, str(BENCH / "environments.py")])}
    found["libraries"] = _once("libraries", _libraries)
    found["lithops"] = lithops()
    java = "" if shutil.which("java") else "there is no java on PATH"
    found["spark"] = java or _once("spark", _environment)
    return {name: reason for name, reason in found.items() if reason}


def lithops() -> str:
    """The reason why Lithops' environment is missing; empty: it exists."""
    return _once("lithops", _environment)


def _once(name: str, commands: object) -> str:
    ready = BENCH_DIR / name / "ready"
    pins = [*PINS[name]] if name == "libraries" else [*PINS[name], f"numpy=={importlib.metadata.version('numpy')}"]
    if ready.exists() and ready.read_text() == "\n".join(pins):
        return ""
    reason = ""
    for command in commands(name, pins):  # type: ignore[operator]
        reason = reason or _done(command)
    if not reason:
        ready.write_text("\n".join(pins))
    return reason


def _libraries(name: str, pins: Sequence[str]) -> list[list[str]]:  # noqa: ARG001
    """A folder of libraries for the project's environment, which stays unchanged."""
    install = [_UV, "pip", "install", "--quiet", "--python", sys.executable, "--target", str(LIBRARIES)]
    return [[*install, *pins]]


def _environment(name: str, pins: Sequence[str]) -> list[list[str]]:
    folder = BENCH_DIR / name
    python = str(folder / "bin" / "python")
    return [
        [_UV, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)],
        [_UV, "pip", "install", "--quiet", "--python", python, *pins],
    ]


def _done(command: Sequence[str]) -> str:
    """Run a command. Returns the last line of an error, or an empty text."""
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if ended.returncode == 0:
        return ""
    said = ended.stderr.strip().splitlines() or [f"ended with code {ended.returncode}"]
    return said[-1][:200]


if __name__ == "__main__":
    for name, reason in make().items():
        print(f"{name}: left out: {reason}")
    print("environments are in BENCH_DIR")
