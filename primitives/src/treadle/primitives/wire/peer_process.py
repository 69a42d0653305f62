"""The process at the other end of a Unix socket."""

from __future__ import annotations

import os
import select
import socket
import struct


def process_of(sock: socket.socket) -> int:
    """Return the id of the process that made the connection; 0 when it is not on a Unix socket."""
    if sock.family != socket.AF_UNIX:
        return 0
    form = struct.Struct("3i")
    process, _, _ = form.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, form.size))
    return int(process)


def has_ended(process: int) -> bool:
    """Return whether no such process runs any more; also for one whose parent has not waited for it yet."""
    try:
        descriptor = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    except OSError:  # no descriptor is left, or the kernel is older than Linux 5.3
        return False
    try:
        return bool(select.select([descriptor], [], [], 0)[0])
    except ValueError:  # select takes no descriptor from 1,024 on
        return False
    finally:
        os.close(descriptor)
