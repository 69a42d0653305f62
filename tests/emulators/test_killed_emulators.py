"""An emulator's processes and folders are gone after any end of the emulator."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from eventually import eventually

_LAMBDA = '''
import sys
from pathlib import Path
from urllib.request import Request, urlopen
from emulators.lambda_code import runtime
from emulators.lambda_emulator import LambdaEmulator

HANDLER = """
import os, subprocess
def handler(event, context):
    other = subprocess.Popen(["sleep", "300"], start_new_session=True)
    return {"pids": [os.getpid(), other.pid]}
"""
folder = Path(sys.argv[1])
(folder / "task").mkdir()
(folder / "task" / "small.py").write_text(HANDLER)
emulator = LambdaEmulator(folder / "emulator").start()
emulator.deploy("f", [str(folder / "task"), runtime(folder)], memory=512, environment={})
emulator.functions.known["f"].handler = "small.handler"
answer = urlopen(Request(f"{emulator.endpoint}/2015-03-31/functions/f/invocations", b"{}"))
print(answer.read().decode(), flush=True)
sys.stdin.read()
'''
_OPENWHISK = '''
import sys, time
from pathlib import Path
import httpx
from emulators.openwhisk import openwhisk
from emulators.test_openwhisk_emulator import document

ACTION = """
import json, os, time
def main(args):
    with open(args["said"] + ".new", "w") as file:
        json.dump({"pids": [os.getpid()]}, file)
    os.rename(args["said"] + ".new", args["said"])
    time.sleep(300)
    return {}
"""
said = Path(sys.argv[1]) / "said"
with openwhisk(Path(sys.argv[1]) / "emulator") as emulator:
    action = f"{emulator.endpoint}/api/v1/namespaces/_/actions/a"
    with httpx.Client(auth=tuple(emulator.key.split(":")), timeout=60, trust_env=False) as http:
        http.put(action, json=document(ACTION, timeout=300_000)).raise_for_status()
        http.post(action, json={"said": str(said)}).raise_for_status()
    while not said.exists():
        time.sleep(0.01)
    print(said.read_text(), flush=True)
    sys.stdin.read()
'''


def _state(pid: int) -> str:
    """The state by proc_pid_stat(5). `X`: the process is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return "X"


@pytest.mark.parametrize(("script", "states"), [(_LAMBDA, "T"), (_OPENWHISK, "RS")], ids=["frozen", "busy"])
def test_sandboxes_end_with_an_emulator_that_is_killed(tmp_path: Path, script: str, states: str) -> None:
    emulator = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with emulator:
        try:
            assert emulator.stdout is not None
            pids = json.loads(emulator.stdout.readline())["pids"]
            eventually(lambda: all(_state(pid) in states for pid in pids))  # a signal takes time to arrive
            folders = list(tmp_path.glob("emulator/**/tmp"))
            assert folders
        finally:
            emulator.kill()
    eventually(lambda: all(_state(pid) in "ZX" for pid in pids) and not any(map(Path.exists, folders)))
