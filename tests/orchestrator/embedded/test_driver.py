"""One driver for each home: alive means that its lock is held; it ends when idle and takes the server with it."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from eventually import eventually

from treadle.orchestrator import embedded
from treadle.orchestrator.embedded import (
    attach,
    down,
    end_driver,
    ensure_driver,
    release,
    running_driver,
    status,
    up,
)
from treadle.orchestrator.embedded.detached_process import (
    bound_log,
    is_held,
    log_tail,
    try_lock,
    wait_free,
    write_state,
)
from treadle.orchestrator.embedded.driver_lease import IDLE_DEFAULT, DriverLease, idle_limit
from treadle.orchestrator.embedded.driver_process import (
    DriverFailed,
    DriverFiles,
    DriverState,
    driver_alive,
    own_code,
    own_state,
)
from treadle.orchestrator.embedded.server import server_alive
from treadle.orchestrator.environment.connection_errors import Unreachable
from treadle.orchestrator.environment.home import Home
from treadle.orchestrator.environment.profile import Profile, load_profile
from treadle.primitives.errors import TreadleError, UsageError

STAND_IN = """
import asyncio, os, signal, sys, time
from treadle.orchestrator.embedded.driver_lease import DriverLease
from treadle.orchestrator.environment.home import Home

home = Home(sys.argv[sys.argv.index("--home") + 1])
lease = DriverLease.take(home)
if lease is None:
    sys.exit(0)

def idle():
    return 0.0 if (home.driver / "busy").exists() else 1e9

async def main():
    with lease:
        BODY

asyncio.run(main())
"""
SERVE = "lease.ready(); print('ended by', await lease.until_end(idle, limit=LIMIT, interval=INTERVAL), flush=True)"
Maker = Callable[..., str]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """A new home. Processes that a test starts in it are ended."""
    home = Home(tmp_path / "home")
    yield home
    down(home)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Maker:
    """Makes a module that replaces the driver. By default it serves and is never idle."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def make(body: str = SERVE, *, limit: float = 1e12, interval: float = 60.0, name: str = "stand_in") -> str:
        body = body.replace("LIMIT", str(limit)).replace("INTERVAL", str(interval))
        indented = textwrap.indent(textwrap.dedent(body).strip(), " " * 8).strip()
        (tmp_path / f"{name}.py").write_text(STAND_IN.replace("BODY", indented))
        return name

    return make


def lock_of(home: Home) -> Path:
    return home.driver / "alive.lock"


def test_second_call_finds_the_first_driver(home: Home, stand_in: Maker) -> None:
    module = stand_in()
    assert not driver_alive(home)
    first = ensure_driver(home, module=module)
    assert first.ready
    assert driver_alive(home)
    begin = time.thread_time()
    assert ensure_driver(home, module=module) == first
    assert time.thread_time() - begin < 0.1


def test_two_starters_at_once_share_one_driver(home: Home, stand_in: Maker) -> None:
    module, pids = stand_in(), []
    threads = [threading.Thread(target=lambda: pids.append(ensure_driver(home, module=module).pid)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(pids) == 3
    assert len(set(pids)) == 1


def test_driver_that_finds_another_ends_quietly(home: Home, stand_in: Maker) -> None:
    module = stand_in()
    first = ensure_driver(home, module=module)
    command = [sys.executable, "-m", module, "--home", str(home.path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert running_driver(home) == first


def test_driver_that_dies_at_start_shows_its_log(home: Home, stand_in: Maker) -> None:
    with pytest.raises(DriverFailed, match=r"ended at start with exit code 1(.|\n)*ValueError: boom"):
        ensure_driver(home, module=stand_in("raise ValueError('boom')"))
    with pytest.raises(DriverFailed, match="No module named absent_module") as caught:
        ensure_driver(home, module="absent_module")
    assert "boom" not in str(caught.value)


def test_driver_that_never_gets_ready_is_reported_and_can_be_ended(
    home: Home, stand_in: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock:
        """Two seconds have passed when the driver begins to load, however long that really takes."""

        sleep = staticmethod(time.sleep)

        @staticmethod
        def monotonic() -> float:
            log = DriverFiles(home).log
            return 3.0 if log.exists() and "still loading" in log.read_text() else 0.0

    monkeypatch.setattr("treadle.orchestrator.embedded.driver_process.time", Clock)
    module = stand_in("print('still loading', flush=True); await asyncio.sleep(600)")
    with pytest.raises(DriverFailed, match=r"was not ready within 2 s(.|\n)*still loading"):
        ensure_driver(home, module=module, timeout=2)
    assert running_driver(home) is not None
    assert end_driver(home)
    assert not driver_alive(home)


def test_killed_driver_is_dead_at_once_and_replaced(home: Home, stand_in: Maker) -> None:
    module = stand_in()
    first = ensure_driver(home, module=module)
    os.kill(first.pid, signal.SIGKILL)
    assert wait_free(lock_of(home), 60)
    assert running_driver(home) is None
    assert ensure_driver(home, module=module).pid != first.pid


def test_forked_child_does_not_keep_a_dead_driver_alive(home: Home, stand_in: Maker) -> None:
    fork = """
    if (child := os.fork()) == 0:
        time.sleep(60)
        os._exit(0)
    (home.driver / "child").write_text(str(child))
    """
    driver = ensure_driver(home, module=stand_in(textwrap.dedent(fork) + SERVE))
    child = int((home.driver / "child").read_text())
    os.kill(driver.pid, signal.SIGKILL)
    try:
        assert wait_free(lock_of(home), 60)
        os.kill(child, 0)
    finally:
        os.kill(child, signal.SIGKILL)


def test_driver_of_other_code_is_replaced(home: Home, stand_in: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    module = stand_in()
    first = ensure_driver(home, module=module)
    monkeypatch.setattr("treadle.orchestrator.embedded.driver_process.code_fingerprint", lambda: "newer")
    second = ensure_driver(home, module=module)
    assert second.pid != first.pid
    assert "ended by signal" in DriverFiles(home).log.read_text()


def test_driver_of_newer_code_is_kept_by_a_process_that_saw_the_code_before(
    home: Home, stand_in: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, views = stand_in(), iter(["as it was before", own_code()])
    first = ensure_driver(home, module=module)
    monkeypatch.setattr("treadle.orchestrator.embedded.driver_process.own_code", functools.cache(lambda: next(views)))
    assert [ensure_driver(home, module=module) for _ in range(2)] == [first, first]


def test_driver_serves_the_profile_of_its_starter(home: Home, stand_in: Maker) -> None:
    home.profiles.write_text("[small]\nslots = 1\n")
    small = load_profile(home, "small", {"TREADLE_STORE": "file:///elsewhere"})
    module = stand_in()
    driver = ensure_driver(home, small, module=module)
    assert json.loads(driver.settings) == {"store": "file:///elsewhere", "slots": 1}
    assert ensure_driver(home, small, module=module) == driver
    assert ensure_driver(home, module=module) == driver


def test_driver_of_another_profile_is_refused_and_left_alone(home: Home, stand_in: Maker) -> None:
    module = stand_in()
    driver = ensure_driver(home, Profile(), module=module)
    with pytest.raises(UsageError, match=r"differs in store(.|\n)*treadle dev down"):
        ensure_driver(home, Profile(store="file:///elsewhere"), module=module)
    assert running_driver(home) == driver


def test_driver_deaf_to_the_first_signal_is_killed(
    home: Home, stand_in: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treadle.orchestrator.embedded.driver_process.END_GRACE", 0.3)
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN); lease.ready(); time.sleep(600)"
    ensure_driver(home, module=stand_in(deaf))
    assert end_driver(home)
    assert not driver_alive(home)


def test_state_naming_another_process_is_neither_believed_nor_killed(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process id of a dead driver now belongs to this test, while another process holds the lock."""
    monkeypatch.setattr("treadle.orchestrator.embedded.driver_process._BIRTH", 0.1)
    state = own_state(started=0.0, fingerprint="x", settings="{}", ready=True)
    assert state.pid == os.getpid()
    write_state(home.driver / "state.json", state)
    hold = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); print(1, flush=True); input()"
    command = [sys.executable, "-c", hold, str(lock_of(home))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert running_driver(home) is None
        with pytest.raises(TreadleError, match="an unknown process holds"):
            end_driver(home)
        holder.communicate(b"\n")


def test_broken_state_file_means_no_driver(home: Home) -> None:
    lease = DriverLease.take(home)
    assert lease is not None
    with lease:
        (home.driver / "state.json").write_text('{"pid": "tex')
        assert running_driver(home) is None
        assert driver_alive(home)


def test_idle_driver_waits_for_work_and_clients_then_ends_with_the_server(home: Home, stand_in: Maker) -> None:
    """Until then it restarts the server when that dies."""
    module = stand_in(limit=1.0, interval=0.05)
    (home.driver / "busy").touch()
    began = up(home, module=module)
    assert status(home) == began
    assert began.server is not None
    os.kill(began.server.pid, signal.SIGKILL)
    eventually(lambda: (now := status(home).server) is not None and now.pid != began.server.pid)  # type: ignore[union-attr]
    release(home)
    time.sleep(0.3)
    assert driver_alive(home), "ended although busy"
    attach(home)
    (home.driver / "busy").unlink()
    time.sleep(0.3)
    assert driver_alive(home), "ended although a client lives"
    release(home)
    eventually(lambda: not driver_alive(home))
    assert not server_alive(home)
    assert "ended by idle" in DriverFiles(home).log.read_text()
    assert down(home) == embedded.Ended(server=False, driver=False)


def test_server_that_cannot_start_is_named_as_the_cause(
    home: Home, stand_in: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treadle.orchestrator.embedded.server.find_program", lambda: str(tmp_path / "absent"))
    with pytest.raises(Unreachable, match="absent"):
        up(home, module=stand_in("raise ValueError('no server')"))


def test_client_waits_for_an_ending_driver(home: Home) -> None:
    lock = try_lock(home.clients)
    assert lock is not None
    threading.Timer(0.3, os.close, [lock]).start()
    begin = time.monotonic()
    attach(home)
    assert time.monotonic() - begin > 0.2
    release(home)


def test_idle_time_is_read_with_its_unit() -> None:
    assert idle_limit({}) == IDLE_DEFAULT
    assert idle_limit({"TREADLE_IDLE": "1m30s"}) == 90.0
    with pytest.raises(UsageError, match="TREADLE_IDLE: a duration needs a unit"):
        idle_limit({"TREADLE_IDLE": "30"})


def test_long_log_keeps_its_end_and_its_writer_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    with log.open("ab", buffering=0) as writer:
        writer.write(b"a" * 900 + b"b" * 100)
        bound_log(log, limit=1000)
        assert log.stat().st_size == 1000
        writer.write(b"c")
        bound_log(log, limit=1000)
        assert log.stat().st_size == 0
        assert (tmp_path / "x.log.1").read_bytes() == b"a" * 24 + b"b" * 100 + b"c"
        writer.write(b"after")
    assert log_tail(log, start=1001) == "after"


def test_long_log_whose_end_cannot_be_kept_is_emptied_all_the_same(tmp_path: Path) -> None:
    """For example on a full disk: the driver that empties it goes on."""
    log = tmp_path / "x.log"
    log.write_bytes(b"a" * 1001)
    (tmp_path / "x.log.1").mkdir()
    bound_log(log, limit=1000)
    assert log.stat().st_size == 0


def test_lock_looked_at_is_not_taken_for_held(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    assert not is_held(lock)
    looking = try_lock(lock, shared=True)
    assert looking is not None
    assert not is_held(lock)
    os.close(looking)
    holding = try_lock(lock)
    assert holding is not None
    assert is_held(lock)
    os.close(holding)
    assert not is_held(lock)


def test_lock_that_cannot_be_opened_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    with pytest.raises(UsageError, match="cannot be opened for writing: Is a directory") as raised:
        try_lock(tmp_path / "lock")
    assert "TREADLE_HOME" in raised.value.hint


def test_state_files_and_logs_are_private(home: Home, stand_in: Maker) -> None:
    state = ensure_driver(home, module=stand_in())
    assert isinstance(state, DriverState)
    for path in home.driver.iterdir():
        if path.name != "busy":
            assert path.stat().st_mode & 0o077 == 0, path
