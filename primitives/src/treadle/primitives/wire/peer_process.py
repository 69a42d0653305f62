"""The process at the other end of a Unix socket."""

from __future__ import annotations

import socket
import struct

_EXITING = 0x4
"""PF_EXITING (include/linux/sched.h)."""


def process_of(sock: socket.socket) -> int:
    """Return the id of the process that made the connection; 0 when it is not on a Unix socket."""
    if sock.family != socket.AF_UNIX:
        return 0
    form = struct.Struct("3i")
    process, _, _ = form.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, form.size))
    return int(process)


def has_ended(process: int) -> bool:
    """Return whether the process runs no more code: it is gone, or the kernel is removing it.

    A process that is killed is marked before its connections are closed (proc_pid_stat(5), field 9).
    """
    try:
        with open(f"/proc/{process}/stat") as file:
            flags = file.read().rpartition(")")[2].split()[6]
    except (FileNotFoundError, ProcessLookupError):
        return True
    except OSError:  # no descriptor is left
        return False
    return bool(int(flags) & _EXITING)
