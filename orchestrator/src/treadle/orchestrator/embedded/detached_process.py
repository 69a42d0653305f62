"""Detached processes of one home: locks that show which are alive, state files, logs of bounded size.

A process is alive when its lock file is locked (flock). The kernel unlocks it at any kind of death, so a pid alone is
never trusted. Locks work between processes of one host. The start is refused if a started process does not inherit the
lock, as on some network file systems.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from treadle.primitives.errors import TreadleError, UsageError
from treadle.primitives.stores.atomic_files import write_file

T = TypeVar("T")
POLL = 0.01
"""Seconds between two looks at a process that is starting or ending."""
LOG_LIMIT = 8 << 20
"""Bytes. A longer log is emptied, and `<log>.1` keeps its last eighth."""


def try_lock(path: Path, *, shared: bool = False) -> int | None:
    """A descriptor that holds the lock until it is closed. None: another process holds it. Raises UsageError."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        text = f"{path} cannot be opened for writing: {error.strerror}"
        raise UsageError(text, "Make its folder writable, free some space, or set TREADLE_HOME to another.") from error
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def wait_lock(path: Path, timeout: float, *, shared: bool = False) -> int:
    """Like try_lock, but waits up to `timeout` seconds for the holder. Raises TreadleError after that."""
    deadline = time.monotonic() + timeout
    while (descriptor := try_lock(path, shared=shared)) is None:
        if time.monotonic() > deadline:
            raise TreadleError(
                f"another process has been holding {path} for more than {timeout:g} s",
                "If it hangs, end it (see `fuser -v` of that file), then try again.",
            )
        time.sleep(POLL)
    return descriptor


@contextlib.contextmanager
def locked(path: Path, timeout: float) -> Iterator[None]:
    """Hold the lock, as the only process at a time."""
    descriptor = wait_lock(path, timeout)
    try:
        yield
    finally:
        os.close(descriptor)


def is_held(path: Path) -> bool:
    """Returns whether a process holds the lock exclusively. The check takes the lock shared for a moment, so checks do
    not collide."""
    if not path.exists():
        return False
    descriptor = try_lock(path, shared=True)
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is None


def has_open(pid: int, path: Path) -> bool:
    """Returns whether process `pid` has the file open. If /proc exists, this proves that the process holds the lock."""
    folder = Path(f"/proc/{pid}/fd")
    if not Path("/proc/self/fd").exists():
        return True
    with contextlib.suppress(OSError):
        wanted = path.stat()
        return any(_same_file(entry, wanted) for entry in folder.iterdir())
    return False


def _same_file(entry: Path, wanted: os.stat_result) -> bool:
    with contextlib.suppress(OSError):
        return os.path.samestat(entry.stat(), wanted)
    return False


def spawn(
    command: Sequence[str],
    *,
    folder: Path,
    log: Path,
    keep: Sequence[int] = (),
    environ: Mapping[str, str] | None = None,
    umask: int = 0o077,
) -> subprocess.Popen[bytes]:
    """Start a process that outlives this one: its own session, no terminal, output to `log`.

    `keep`: descriptors that it inherits. `environ`: its variables; default: this process's. `umask`: default: its
    files are private; -1: this process's. It is reaped if it ends before this process.
    """
    bound_log(log)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    output = os.open(log, flags, 0o600)
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=keep,
            start_new_session=True,
            umask=umask,
        )
    finally:
        os.close(output)
    threading.Thread(target=process.wait, name=f"wait for {process.pid}", daemon=True).start()
    return process


def end_process(pid: int | None, lock: Path, grace: float) -> bool:
    """End the holder of `lock`, reported to be `pid`: SIGTERM, then SIGKILL after `grace` seconds.

    Returns whether there was a holder. Raises TreadleError when the holder is not `pid`, or survives SIGKILL.
    """
    if not is_held(lock):
        return False
    if pid is None or not has_open(pid, lock):
        raise TreadleError(f"an unknown process holds {lock}", "Find it (`fuser -v` of that file) and end it.")
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, 10.0)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        if wait_free(lock, patience):
            return True
    raise TreadleError(f"process {pid} does not end, not even by SIGKILL", "Its disk may hang; look at the machine.")


def wait_free(lock: Path, timeout: float) -> bool:
    """Wait until the lock is free. False: it is still held after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while is_held(lock):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL)
    return True


def write_state(path: Path, state: msgspec.Struct) -> None:
    """Replace a state file atomically."""
    write_file(path, [msgspec.json.encode(state)], durable=False)


def read_state(path: Path, kind: type[T]) -> T | None:
    """The state file's content. None: the file is absent or has another format."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def bound_log(path: Path, limit: int = LOG_LIMIT) -> None:
    """Empty a log larger than `limit` bytes, and keep its last eighth in `<log>.1`, as far as that is possible.

    Writers append, so they continue at the beginning. Lines written in the meantime may be lost.
    """
    with contextlib.suppress(OSError):
        if path.stat().st_size <= limit:
            return
        last = _last_bytes(path, limit // 8)
        os.truncate(path, 0)  # first, as it frees space on a full disk
        kept = path.with_name(path.name + ".1")
        kept.touch(mode=0o600)
        kept.write_bytes(last)


def log_size(path: Path) -> int:
    """Bytes in the log now, which is the offset of the next process's output."""
    return path.stat().st_size if path.exists() else 0


def log_tail(path: Path, start: int = 0) -> str:
    """The last 15 lines written to the log since byte `start`."""
    with contextlib.suppress(OSError):
        size = path.stat().st_size
        text = _last_bytes(path, min(size - start if start <= size else size, 16 << 10)).decode(errors="replace")
        return "\n".join(text.strip().splitlines()[-15:])
    return ""


def _last_bytes(path: Path, count: int) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - count))
        return file.read()
