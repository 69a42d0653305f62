"""What wakes the thread of a session: other threads, and new objects of the ledger."""

from __future__ import annotations

import os
import select
import time
from pathlib import Path

from treadle.orchestrator.run_store.chain_watch import ChainWatch


class SessionWake:
    """Any number of threads may call `rouse`, one calls the other methods."""

    def __init__(self, ledger: Path | None) -> None:
        """`ledger`: the folder of the ledger, if it is on this host."""
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._roused = False
        self._poll = select.poll()
        self._poll.register(self._event, select.POLLIN)
        self._watch = ChainWatch(ledger, self._poll.register)
        self.announces = self._watch.announces
        """Whether every new object of the ledger since the last call ends a `wait`."""

    def __del__(self) -> None:
        os.close(self._event)

    def rouse(self) -> None:
        """End the current `wait`, or the next one."""
        if not self._roused:
            self._roused = True
            os.eventfd_write(self._event, 1)

    def wait(self, seconds: float) -> None:
        """Return after `rouse`, a new object of the ledger, or `seconds`."""
        end = time.monotonic() + seconds
        while ready := self._poll.poll(max(0.0, end - time.monotonic()) * 1000):
            if (self._event, select.POLLIN) in ready:
                os.eventfd_read(self._event)
                self._roused = False  # after the read, and before the caller looks
                return
            if self._watch.take():
                return

    def close(self) -> None:
        """Watch no longer."""
        self._roused = True
        self._watch.close()
