"""A worker imports only the modules that it needs: a cold worker must accept tasks within 150 ms."""

from __future__ import annotations

import subprocess
import sys

from treadle.executors.local import orphan_guard as local_guard

_TOO_MUCH = {
    "temporalio",
    "pydantic",
    "typer",
    "rich",
    "yaml",
    "numpy",
    "pyarrow",
    "obstore",
    "asyncio",
    "cloudpickle",
    "pytest",
}


_TOO_EARLY = {
    "dataclasses",
    "difflib",
    "fractions",
    "gzip",
    "hashlib",
    "importlib.metadata",
    "json",
    "logging",
    "random",
    "secrets",
    "shutil",
    "tempfile",
    "treadle.executors.bundle.unpack",
    "treadle.primitives.formats.encode",
    "treadle.primitives.formats.output_folder",
    "treadle.primitives.formats.read",
    "treadle.primitives.sealing",
}
"""Together 25 ms of processor time, of no use for a worker that waits for its first task."""


def _imported(module: str) -> set[str]:
    code = f"import {module}, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, check=True, text=True)
    return set(done.stdout.split())


def test_worker_imports_nothing_heavy() -> None:
    imported = _imported("treadle.executors.worker.main")
    assert "treadle.executors.runtime.runtime" in imported
    assert imported & _TOO_MUCH == set()


def test_a_waiting_worker_has_imported_nothing_it_may_never_use() -> None:
    imported = _imported("treadle.executors.worker.main") - _imported("traceback")  # it needs dataclasses in 3.14
    assert imported & _TOO_EARLY == set()


def test_functions_of_the_suite_import_nothing_of_it() -> None:
    assert _imported("treadle.executors.testing.functions") & (_TOO_MUCH | {"treadle.executors.testing.suite"}) == set()


def test_guard_runs_without_site_packages() -> None:
    done = subprocess.run([sys.executable, "-I", "-S", local_guard.__file__], input=b"", capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
