"""Coordinators for gangs: in a thread, or in a process that can be killed."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator

from treadle.primitives.coordinator import Close, Coordinator, Instruction, Send, Timing
from treadle.primitives.coordinator.messages import FromMember
from treadle.primitives.wire import AsyncConnection, WireError, serve


class Shell:
    def __init__(self) -> None:
        self.machine = Coordinator(timing=Timing(lease=8.0), last_epoch=int(time.time() * 1000))
        self.connections: dict[int, AsyncConnection] = {}
        self.count = 0

    async def handle(self, connection: AsyncConnection) -> None:
        self.count += 1
        number, self.connections[self.count] = self.count, connection
        self.do(self.machine.connected(number, time.monotonic()))
        try:
            while True:
                message, _ = await connection.receive(FromMember, time.monotonic() + 100)
                self.do(self.machine.received(number, message, time.monotonic()))
                self.do(self.machine.tick(time.monotonic()))
        except WireError:
            pass
        finally:
            self.connections.pop(number, None)
            self.do(self.machine.disconnected(number, time.monotonic()))

    async def clock(self) -> None:
        while True:
            await asyncio.sleep(0.05)
            self.do(self.machine.tick(time.monotonic()))

    def do(self, instructions: list[Instruction]) -> None:
        for instruction in list(instructions):
            if isinstance(instruction, Send) and instruction.connection in self.connections:
                with contextlib.suppress(WireError):
                    self.connections[instruction.connection].send_nowait(instruction.message)
            elif isinstance(instruction, Close) and (one := self.connections.pop(instruction.connection, None)):
                one.close()


@contextlib.contextmanager
def running(run: str, key: bytes) -> Iterator[str]:
    ready, stop = threading.Event(), threading.Event()
    address: list[str] = []

    async def main() -> None:
        shell = Shell()
        async with await serve(shell.handle, "tcp://127.0.0.1:0", {run: key}.get) as server:
            clock = asyncio.create_task(shell.clock())
            address.append(server.address)
            ready.set()
            while not stop.is_set():
                await asyncio.sleep(0.05)
            clock.cancel()

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield address[0]
    finally:
        stop.set()
        thread.join(10)
