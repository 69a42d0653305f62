"""The process of one sandbox: `python -m treadle.executors.emulation.sandbox FD MEMORY RESERVED`, started by its
invoker.

A call is an eight-byte length (big-endian), the seconds as an eight-byte double, and the request. The answer is an
eight-byte length and the response.
"""

from __future__ import annotations

import socket
import struct
import sys

from ..function_handler import Handler

HEAD = struct.Struct(">Qd")
LENGTH = struct.Struct(">Q")


def main() -> None:
    """Serve calls one after the other, until the invoker closes the connection."""
    memory, reserve = int(sys.argv[2]), int(sys.argv[3])
    handler = Handler(reserve=reserve)
    handler.start(memory)
    with socket.socket(fileno=int(sys.argv[1])) as connection, connection.makefile("rwb") as stream:
        while head := stream.read(HEAD.size):
            length, seconds = HEAD.unpack(head)
            response = handler.handle_json(stream.read(length), seconds, memory)
            stream.write(LENGTH.pack(len(response)) + response)
            stream.flush()


if __name__ == "__main__":
    main()
