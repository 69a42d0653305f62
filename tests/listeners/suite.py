"""The guarantees of every listener about strangers. A subclass names its server and does a legitimate call."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, NamedTuple
from urllib.parse import urlsplit

import pytest
from eventually import eventually
from listeners.flood import Target, flood

TESTS = Path(__file__).parent.parent
PATIENCE = 90.0
LOG_LINES = 60
MEMORY = 200 << 20
"""Maximum of bytes that strangers may cost a listener."""


class Crowd(NamedTuple):
    """The numbers of strangers of each kind, the descriptors of the listener's process, and the legitimate calls during
    the flood."""

    strangers: int
    descriptors: int
    tasks: int


SMALL, LARGE = Crowd(300, 256, 3), Crowd(2000, 1024, 20)


class Listening(NamedTuple):
    """A listener's process."""

    process: subprocess.Popen[str]
    address: str
    log: Path

    @property
    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    @property
    def memory(self) -> int:
        """Resident bytes."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


class ListenerSuite(ABC):
    """Thin subclasses: tests/listeners/test_listeners.py."""

    server: ClassVar[str]
    """The name in `listeners.servers`."""
    words: ClassVar[bytes] = b"\0\0\0\x60" + bytes(8) + b"Otreadle wire\x01" + bytes(60)
    """The first bytes of a slow stranger. Default: the start of a handshake."""

    @abstractmethod
    def work(self, address: str, deadline: float) -> None:
        """A legitimate call over a connection of its own. Raises when it fails."""

    @pytest.mark.timeout(600)
    @pytest.mark.parametrize("crowd", [SMALL, pytest.param(LARGE, marks=pytest.mark.chaos)], ids=["small", "large"])
    def test_legitimate_work_goes_on_under_a_flood_of_strangers(self, crowd: Crowd, tmp_path: Path) -> None:
        with self._listening(crowd, tmp_path) as listening:
            self.work(listening.address, time.monotonic() + PATIENCE)
            before, known = listening.memory, listening.descriptors
            with flood(_endpoint(listening.address), crowd.strangers, crowd.strangers, self.words) as strangers:
                eventually(lambda: strangers.ended > crowd.strangers)
                took, most = self._measure(listening, crowd.tasks)
                assert most[0] < crowd.descriptors
                assert most[1] - before < MEMORY
            eventually(lambda: listening.descriptors <= known + 2)
            self.work(listening.address, time.monotonic() + PATIENCE)
            lines = len(listening.log.read_text().splitlines())
            assert lines < LOG_LINES
            self._report(crowd, took, (known, *most, before), lines)

    @pytest.mark.timeout(600)
    def test_stranger_is_ended_when_its_time_is_over(self, tmp_path: Path) -> None:
        with self._listening(SMALL, tmp_path) as listening:
            with flood(_endpoint(listening.address), 2, 2, self.words) as strangers:
                eventually(lambda: strangers.ended >= 8)
            assert listening.process.poll() is None

    def _measure(self, listening: Listening, tasks: int) -> tuple[list[float], tuple[int, int]]:
        """(seconds of each call, (maximum of descriptors, maximum of bytes) between them)."""
        took, descriptors, memory = [], 0, 0
        for _ in range(tasks):
            began = time.monotonic()
            self._try_until_done(listening.address)
            took.append(time.monotonic() - began)
            descriptors, memory = max(descriptors, listening.descriptors), max(memory, listening.memory)
        return sorted(took), (descriptors, memory)

    def _try_until_done(self, address: str) -> None:
        """Like legitimate callers: dial again after a refusal."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return self.work(address, deadline)
            except Exception:
                if time.monotonic() > deadline:
                    raise

    def _report(self, crowd: Crowd, took: list[float], use: tuple[int, int, int, int], lines: int) -> None:
        idle, descriptors, memory, before = use
        text = (
            f"{self.server}: {crowd.strangers} idle and {crowd.strangers} slow strangers, {crowd.descriptors} allowed; "
        )
        text += f"descriptors {idle} -> {descriptors}, memory {before >> 20} -> {memory >> 20} MiB, {lines} log lines, "
        text += f"work took {took[len(took) // 2] * 1000:.0f} ms (median), {took[-1] * 1000:.0f} ms (most)"
        print(text)  # noqa: T201

    @contextlib.contextmanager
    def _listening(self, crowd: Crowd, folder: Path) -> Iterator[Listening]:
        command = [sys.executable, "-m", "listeners.servers", self.server, str(crowd.descriptors)]
        environment = {**os.environ, "PYTHONPATH": str(TESTS)}
        log = folder / "log"
        with (
            log.open("w") as errors,
            subprocess.Popen(
                command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            ) as process,
        ):
            assert process.stdout is not None
            assert process.stdin is not None
            try:
                yield Listening(process, process.stdout.readline().strip(), log)
                process.stdin.close()
                assert process.wait(PATIENCE) == 0
            finally:
                process.kill()


def _endpoint(address: str) -> Target:
    found = urlsplit(address)
    if found.scheme == "unix":
        return found.path
    assert found.hostname is not None
    assert found.port is not None
    return found.hostname, found.port
