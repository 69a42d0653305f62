"""The state of a run in a warm process: its own modules, its tasks' folder, and complete code."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from executors.bench import KEY
from executors.test_bundle import TESTS, build, write

from treadle.primitives import sealing
from treadle.primitives.stores.store import Store

Script = Callable[..., list[str]]
STATEFUL = "seen = []\ndef f(x):\n    seen.append(x)\n    return list(seen)\n"
SETUP = """
import shutil, sys
from treadle.executors.bundle.unpack import cache_root, imported_before, prepare
from treadle.primitives import functions
from treadle.primitives.stores.store import Store

store, digest, key = Store.open(sys.argv[1]), sys.argv[2], KEY

def call(run, x):
    prepare(store, run, digest, key)
    return functions.load("stateful:f")(x)
"""


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Runs code in another process. Runs `a` to `f` share a bundle, whose function keeps its arguments.

    Returns the printed lines.
    """
    project = tmp_path / "project"
    project.mkdir()
    write(project, {"stateful": STATEFUL})
    bundle = build(project, "stateful:f")
    for run in "abcdef":
        name = f"runs/{run}/bundle"
        Store.open(f"file://{tmp_path}/store").put(name, sealing.seal(KEY, name, bundle.data))

    def start(code: str) -> list[str]:
        environment = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": "", "PYTHONPATH": TESTS}
        text = SETUP.replace("KEY\n", f"{KEY!r}\n") + code
        command = [sys.executable, "-c", text, f"file://{tmp_path}/store", bundle.digest]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return start


def test_run_does_not_see_module_state_of_another_run(script: Script) -> None:
    assert script("print(call('a', 1), call('a', 2), call('b', 3))") == ["[1] [1, 2] [3]"]


def test_module_is_not_kept_for_a_run_that_comes_back(script: Script) -> None:
    assert script("print(call('a', 1), call('b', 2), call('a', 3))") == ["[1] [2] [3]"]


def test_module_counts_as_imported_before_in_a_later_run_only(script: Script) -> None:
    code = "call('a', 1); print(imported_before('stateful')); call('b', 1); print(imported_before('stateful'))"
    assert script(code) == ["False", "True"]


@pytest.mark.parametrize("damage", ["shutil.rmtree(cache_root())", "shutil.rmtree(cache_root() / digest / 'modules')"])
def test_code_that_was_removed_under_a_live_process_is_unpacked_again(script: Script, damage: str) -> None:
    assert script(f"call('a', 1); {damage}; print(call('b', 2))") == ["[2]"]
