"""The modules that a command imports, in a new process: most of the time until it does its work."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from orchestrator.run_requests.known_runs import VIEW

from treadle.orchestrator.environment.home import Home
from treadle.orchestrator.run_requests.driver_server import DriverServer
from treadle.orchestrator.run_requests.requests import RunPage
from treadle.primitives.sealing import load_or_create_key

WORDCOUNT = Path(__file__).parents[2] / "examples" / "wordcount" / "wordcount.yaml"
COMMANDS = {
    "start_of_list": ("list",),  # the driver answers it
    "start_of_plan": ("plan", str(WORDCOUNT), "-i", f"corpus={WORDCOUNT}"),
}
_PROGRAM = """
import json, sys
address, *words = sys.argv[1:]
before = set(sys.modules)
from treadle.cli.commands import app
from treadle.orchestrator import embedded
from treadle.orchestrator.embedded import driver_process
embedded.running_server = driver_process.answering_driver = lambda home: address
try: app(words, standalone_mode=False)
except SystemExit as end: assert not end.code, end.code
print(json.dumps(sorted(set(sys.modules) - before)), file=sys.stderr)
"""


class _OneRun:
    """The runs of a driver that has one."""

    async def ask(self, request: object) -> Any:
        return RunPage((VIEW,), b"")


async def modules(name: str, folder: Path) -> list[str]:
    """The names of the modules, of treadle and of others. Raises AssertionError when the command fails."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("TREADLE_")}
    environ["TREADLE_HOME"] = str(folder)
    async with DriverServer(_OneRun(), load_or_create_key(Home(folder).key)) as driver:
        command, pipe = (sys.executable, "-c", _PROGRAM, driver.address, *COMMANDS[name]), subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, cwd=folder, env=environ, stdout=pipe, stderr=pipe)
        _, said = await process.communicate()
    assert process.returncode == 0, said.decode()
    found: list[str] = json.loads(said.splitlines()[-1])
    return found
