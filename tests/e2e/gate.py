"""A TCP gateway to a server, which tests close and reopen: `python gate.py PORT TARGET_PORT`."""

from __future__ import annotations

import asyncio
import contextlib
import sys


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(2**16):
            writer.write(data)
            await writer.drain()
    writer.close()


async def serve(port: int, target: int) -> None:
    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", target)
        await asyncio.gather(pump(reader, back), pump(there, writer))

    server = await asyncio.start_server(join, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2])))
