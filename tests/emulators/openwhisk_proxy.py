"""A container of the Python runtime of OpenWhisk, as one process: `openwhisk_proxy.py READY CACHE MEMORY`.

It serves the protocol of docs/actions-new.md of apache/openwhisk (POST /init, POST /run), with the behaviour of the
proxy of apache/openwhisk-runtime-go (openwhisk/{initHandler,runHandler,executor}.go) and the layout and launcher of
apache/openwhisk-runtime-python (core/python3Action/{bin/compile,lib/launcher.py}). Its stdout and stderr are the
container's log. READY is a descriptor for the port; MEMORY is the container's limit in bytes. CACHE is the one
difference from a real container: containers with the same code share the folder to which it was unpacked.

Only the standard library is imported, since the action must get everything else from its zip.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import hashlib
import io
import itertools
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
import zipfile
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

GUARD = "XXX_THE_END_OF_A_WHISK_ACTIVATION_XXX\n"
PROXY_BYTES = 110 << 20
"""Counted for the container's own proxy, which shares the action's limit (DockerContainer.scala of apache/openwhisk,
`--memory`). Measured with the proxy of apache/openwhisk-runtime-python and treadle's processes: 150 to 180 MB in
total."""
_PR_SET_CHILD_SUBREAPER, _PR_SET_PDEATHSIG = 36, 1

LAUNCHER = """\
from sys import stdin, stdout, stderr
from os import fdopen
import os, json, traceback
from main__ import MAIN as main
out = fdopen(3, "wb")
if os.getenv("__OW_WAIT_FOR_ACK", "") != "":
    out.write(json.dumps({"ok": True}, ensure_ascii=False).encode("utf-8") + b"\\n")
    out.flush()
env = os.environ
while True:
    line = stdin.readline()
    if not line: break
    args = json.loads(line)
    payload = {}
    for key in args:
        if key == "value":
            payload = args["value"]
        else:
            env["__OW_%s" % key.upper()] = args[key]
    res = {}
    try:
        res = main(payload)
    except Exception as ex:
        print(traceback.format_exc(), file=stderr)
        res = {"error": str(ex)}
    out.write(json.dumps(res, ensure_ascii=False).encode("utf-8") + b"\\n")
    stdout.flush()
    stderr.flush()
    out.flush()
"""
"""core/python3Action/lib/launcher.py, without its virtualenv."""


class Refused(Exception):
    """A response other than 200."""

    def __init__(self, status: int, error: str) -> None:
        super().__init__(error)
        self.status = status


class Action:
    """The process of the action: JSON lines on stdin, answers on descriptor 3."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        receiving, sending = os.pipe()
        self._answers = receiving
        # The image sets the path of its interpreter outside of the environment. Here it starts without site-packages.
        command = [sys.executable, "-S", "-c", _EXEC, str(sending)]
        self._process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.PIPE, pass_fds=[sending], bufsize=0
        )
        os.close(sending)
        self._exit = os.pidfd_open(self._process.pid)

    def interact(self, line: bytes) -> bytes | None:
        """The answer. None: the process ended instead (`Executor.Interact`)."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            left = memoryview(line + b"\n")
            while left:
                left = left[self._process.stdin.write(left) or 0 :]
        return self.read_line()

    def read_line(self) -> bytes | None:
        found = b""
        with selectors.DefaultSelector() as waiting:
            for descriptor in (self._answers, self._exit):
                waiting.register(descriptor, selectors.EVENT_READ)
            while not found.endswith(b"\n"):
                ready = {key.fd for key, _ in waiting.select()}
                if self._answers in ready and (data := os.read(self._answers, 1 << 20)):
                    found += data
                else:
                    return None
        return found


_EXEC = """
import os, sys
if int(sys.argv[1]) != 3:
    os.dup2(int(sys.argv[1]), 3)
    os.close(int(sys.argv[1]))
os.set_inheritable(3, True)
os.execve(sys.executable, [sys.executable, "-S", "exec__.py"], os.environ)
"""


class Proxy:
    """`ActionProxy`."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._initialized = False
        self._action: Action | None = None

    def init(self, body: Any) -> dict[str, Any]:
        if self._initialized:
            raise Refused(403, "Cannot initialize the action more than once.")
        value = body.get("value", {})
        if not value.get("code"):
            raise Refused(403, "Missing main/no code to execute.")
        code = base64.b64decode(value["code"]) if value.get("binary") else value["code"].encode()
        folder = self._unpacked(code, value.get("main") or "main")
        action = Action(folder, self._environment(value.get("env", {})))
        if (ack := action.read_line()) is None or not json.loads(ack).get("ok"):
            _write_guards("Command exited abruptly during initialization.\n")
            raise Refused(502, "Cannot start action. Check logs for details.")
        self._action, self._initialized = action, True
        return {"ok": True}

    def run(self, body: bytes) -> bytes:
        if self._action is None:
            raise Refused(500, "no action defined yet")
        answer = self._action.interact(body.replace(b"\n", b""))
        _write_guards()
        if answer is None:
            self._action = None
            raise Refused(400, "command exited")
        try:
            is_valid = isinstance(json.loads(answer), dict | list)
        except ValueError:
            is_valid = False
        if not is_valid:
            raise Refused(502, "The action did not return a dictionary or array.")
        return answer

    def _environment(self, given: dict[str, Any]) -> dict[str, str]:
        """The whole environment of the action (`SetEnv`, `NewExecutor`)."""
        own = {"__OW_PROXY_VERSION": "emulated", "__OW_WAIT_FOR_ACK": "1", "PYTHONIOENCODING": "UTF-8"}
        own["TMPDIR"] = os.getcwd()  # instead of a container's own /tmp
        words = {name: value if isinstance(value, str) else json.dumps(value) for name, value in given.items()}
        return own | words

    def _unpacked(self, code: bytes, main: str) -> Path:
        folder = self._cache / hashlib.sha256(code + main.encode()).hexdigest()
        if not folder.exists():
            scratch = folder.with_name(f"{folder.name}.{os.getpid()}")
            with zipfile.ZipFile(io.BytesIO(code)) as archive:
                archive.extractall(scratch)
            (scratch / "__main__.py").rename(scratch / "main__.py")
            (scratch / "exec__.py").write_text(LAUNCHER.replace("MAIN", main))
            with contextlib.suppress(OSError):  # another container was first
                scratch.rename(folder)
        return folder


def _write_guards(error: str = "") -> None:
    os.write(1, GUARD.encode())
    os.write(2, (error + GUARD).encode())


class Handler(BaseHTTPRequestHandler):
    """Activations never overlap, so neither do requests."""

    protocol_version = "HTTP/1.1"
    proxy: Proxy

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            answer = (
                self.proxy.run(body) if self.path == "/run" else json.dumps(self.proxy.init(json.loads(body))).encode()
            )
            self._send(200, answer)
        except Refused as refused:
            self._send(refused.status, json.dumps({"error": str(refused)}).encode())

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """The log belongs to the action."""


def watch_memory(limit: int) -> None:
    """Acts like a memory control group: kills the largest process once all together exceed the limit."""
    known: list[int] = []
    for tick in itertools.count():
        time.sleep(0.05)
        if tick % 5 == 0:
            known = descendants(os.getpid())
        sizes = {pid: size for pid in known if (size := resident(pid))}
        if PROXY_BYTES + sum(sizes.values()) > limit:
            with contextlib.suppress(ProcessLookupError):
                os.kill(max(sizes, key=lambda pid: sizes[pid]), signal.SIGKILL)


def descendants(root: int) -> list[int]:
    """The present descendants, parents first. Children of a process that ends in the meantime may be missed
    (proc_pid_children(5))."""
    found = [root]
    for pid in found:  # the list grows
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found[1:]


def resident(pid: int) -> int:
    """Bytes, without shared pages of files."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0
    return (int(fields[1]) - int(fields[2])) * 4096


def main(ready: int, cache: str, memory: int) -> None:
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1)  # orphans of the action stay in its container
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    server = HTTPServer(("127.0.0.1", 0), Handler)
    Handler.proxy = Proxy(Path(cache))
    threading.Thread(target=watch_memory, args=(memory,), daemon=True).start()
    os.write(ready, str(server.server_port).encode() + b"\n")
    os.close(ready)
    server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
