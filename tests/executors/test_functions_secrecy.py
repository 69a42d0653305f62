"""User code in a sandbox cannot read the secrets of its supervising process."""

from __future__ import annotations

import subprocess
import sys

_SUPERVISOR = """
import ctypes, os, sys
from treadle.executors.function_handler import hide_memory

if os.geteuid() == 0:
    os.setuid(65534)  # root may read everything
    ctypes.CDLL(None).prctl(4, 1)  # as a process is that never was another user's
if sys.argv[1] == "hidden":
    hide_memory()
supervisor = os.getpid()
if os.fork() == 0:
    try:
        print("TREADLE_KEY" in open(f"/proc/{supervisor}/environ").read(), flush=True)
    except PermissionError:
        print("refused", flush=True)
    os._exit(0)
os.wait()
"""


def _seen(how: str) -> str:
    """A child process's view of its parent's first environment."""
    environment = {"TREADLE_KEY": "a secret"}
    command = [sys.executable, "-c", _SUPERVISOR, how]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def test_the_first_environment_of_a_process_is_open_to_its_children() -> None:
    """Checks the check."""
    assert _seen("open") == "True"


def test_the_key_in_the_first_environment_of_a_function_is_not() -> None:
    assert _seen("hidden") == "refused"
