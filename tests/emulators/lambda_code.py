"""The import path of a function: treadle with its libraries at the task root, and Lambda's own runtime.

`linked` makes links, for tests that need no package; `unpacked` unpacks the real one.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIBRARIES = ("msgspec", "numpy", "numpy.libs", "obstore", "xxhash", "cloudpickle", "pyarrow", "pyarrow.libs")
RUNTIME = (
    *("awslambdaric", "simplejson", "snapshot_restore_py.py", "runtime_client*.so"),
    *("boto3", "botocore", "s3transfer", "jmespath", "urllib3", "dateutil", "six.py"),
)
"""Developer guide, "Building Lambda functions with Python": the runtime includes the runtime interface client, and the
SDK for Python with its dependencies."""


def site_packages() -> Path:
    found = importlib.util.find_spec("awslambdaric")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parents[1]


def linked(folder: Path) -> list[str]:
    """Task root and runtime, as links to the installed distributions."""
    treadle = folder / "task" / "treadle"
    treadle.mkdir(parents=True)
    for member in ("primitives", "executors"):
        (treadle / member).symlink_to(ROOT / member / "src" / "treadle" / member)
    _link(folder / "task", LIBRARIES)
    return [str(folder / "task"), runtime(folder)]


def unpacked(folder: Path) -> list[str]:
    """Task root with the deployed package, and the runtime."""
    from emulators.packages import local_package

    task = folder / "task"
    task.mkdir(parents=True)
    local_package().unpack(task)
    return [str(task), runtime(folder)]


def runtime(folder: Path) -> str:
    there = folder / "runtime"
    there.mkdir()
    _link(there, RUNTIME)
    return str(there)


def _link(folder: Path, names: tuple[str, ...]) -> None:
    for name in names:
        for found in site_packages().glob(name):
            (folder / found.name).symlink_to(found)
