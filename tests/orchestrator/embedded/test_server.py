"""One server for each home: started once, found again, restarted on the same data after any death."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from urllib.error import HTTPError, URLError

import pytest
from temporalio import workflow

from treadle.orchestrator.embedded import end_server, ensure_server, running_server, server
from treadle.orchestrator.embedded.detached_process import wait_free, write_state
from treadle.orchestrator.embedded.server import NAMESPACE, ServerState, has_unfinished_database, server_alive
from treadle.orchestrator.environment.connection_errors import Unreachable
from treadle.orchestrator.environment.home import Home
from treadle.orchestrator.environment.profile import Profile, TemporalSettings, TlsSettings
from treadle.orchestrator.temporal.connect import connect
from treadle.primitives.errors import TreadleError, UsageError

ENSURE = """
import sys
from treadle.orchestrator.embedded import ensure_server
from treadle.orchestrator.environment.home import Home
print(ensure_server(Home(sys.argv[1])).pid)
"""


class Served:
    """A home whose server was started by two processes at once."""

    def __init__(self, home: Home, pids: list[int]) -> None:
        self.home = home
        self.pids = pids


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = Home(tmp_path_factory.mktemp("served"))
    command = [sys.executable, "-c", ENSURE, str(home.path)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE) as first,
        subprocess.Popen(command, stdout=subprocess.PIPE) as second,
    ):
        pids = [int(process.communicate(timeout=60)[0]) for process in (first, second)]
    yield Served(home, pids)
    end_server(home)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """A new home. Processes that a test starts in it are ended."""
    home = Home(tmp_path / "home")
    yield home
    end_server(home)


def kill(home: Home) -> None:
    state = running_server(home)
    assert state is not None
    os.kill(state.pid, signal.SIGKILL)
    assert wait_free(home.server / "alive.lock", 60)


def listening_ports(pid: int) -> dict[int, str]:
    """Port -> address in hexadecimal of every TCP socket on which the process listens."""
    links = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed in the meantime
            links.append(os.readlink(entry))
    rows = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()
    ]
    listening = [row[1].split(":") for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in links]
    return {int(port, 16): address for address, port in listening}


async def describe_id(home: Home, run: str) -> str:
    client = await connect(Profile(), home)
    return (await client.get_workflow_handle(run).describe()).id


async def start_workflow(home: Home, run: str) -> None:
    client = await connect(Profile(), home)
    await client.start_workflow("Absent", id=run, task_queue="nobody")


def test_two_starters_at_once_share_one_server(served: Served) -> None:
    state = ensure_server(served.home)
    assert served.pids == [state.pid, state.pid]
    assert state == running_server(served.home)
    assert state.namespace == NAMESPACE


def test_second_look_at_a_running_server_is_quick(served: Served) -> None:
    ensure_server(served.home)
    begin = time.thread_time()
    ensure_server(served.home)
    assert time.thread_time() - begin < 0.05


async def test_closed_runs_are_kept_for_thirty_days(served: Served) -> None:
    from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest

    client = await connect(Profile(), served.home)
    found = await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=NAMESPACE))
    assert found.config.workflow_execution_retention_ttl.ToTimedelta() == timedelta(days=30)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_server_listens_on_loopback_only_and_serves_no_http_api(served: Served) -> None:
    ports = listening_ports(ensure_server(served.home).pid)
    assert len(ports) > 1
    assert set(ports.values()) == {"0100007F"}
    for port in ports:
        with pytest.raises((URLError, OSError)) as refused:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/namespaces", timeout=2)
        if isinstance(refused.value, HTTPError):
            refused.value.close()


def test_unknown_namespace_and_unreachable_server_have_different_errors(served: Served) -> None:
    address = ensure_server(served.home).address
    wrong = Profile(temporal=TemporalSettings(address=address, namespace="nope"))
    with pytest.raises(Unreachable, match=rf"{address} has no namespace 'nope'"):
        asyncio.run(connect(wrong, served.home))


def test_tls_asked_of_a_plain_server_says_so(served: Served) -> None:
    address = ensure_server(served.home).address
    wrong = Profile(temporal=TemporalSettings(address=address, tls=TlsSettings(server_name="x")))
    with pytest.raises(Unreachable, match="does not speak TLS"):
        asyncio.run(connect(wrong, served.home))


def test_asking_a_server_for_the_ui_it_lacks_is_refused(served: Served) -> None:
    with pytest.raises(UsageError, match="treadle dev down"):
        ensure_server(served.home, ui=True)


def test_timers_are_not_a_second_late(served: Served) -> None:
    """The development server's own settings make five timers of one millisecond take five seconds."""
    assert asyncio.run(time_five_timers(served.home)) < 2.5


@workflow.defn(sandboxed=False)
class Timers:
    @workflow.run
    async def run(self, count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0.001)


async def time_five_timers(home: Home) -> float:
    from temporalio.worker import UnsandboxedWorkflowRunner, Worker

    client = await connect(Profile(), home)
    async with Worker(client, task_queue="t", workflows=[Timers], workflow_runner=UnsandboxedWorkflowRunner()):
        await client.execute_workflow("Timers", 1, id="warm", task_queue="t")
        took = []
        for number in range(4):  # on a busy machine one of them passes
            begin = time.perf_counter()
            await client.execute_workflow("Timers", 5, id=f"timed-{number}", task_queue="t")
            took.append(time.perf_counter() - begin)
        return min(took)


def test_database_keeps_a_write_ahead_log(served: Served) -> None:
    """The server's speed doubles with this setting, which is not its default."""
    ensure_server(served.home)
    assert (served.home.server / "temporal.db-wal").exists()


def test_killed_server_comes_back_with_its_data_on_its_port(served: Served) -> None:
    asyncio.run(start_workflow(served.home, "survivor"))
    before = ensure_server(served.home)
    kill(served.home)
    assert running_server(served.home) is None
    after = ensure_server(served.home)
    assert (after.address, after.pid == before.pid) == (before.address, False)
    assert asyncio.run(describe_id(served.home, "survivor")) == "survivor"


def test_server_whose_starter_died_half_way_is_adopted(served: Served) -> None:
    before = ensure_server(served.home)
    (served.home.server / "state.json").unlink()
    assert running_server(served.home) is None
    assert ensure_server(served.home) == before


def test_taken_port_is_left_alone(served: Served) -> None:
    old = ensure_server(served.home).address
    end_server(served.home)
    with socket.create_server(("127.0.0.1", int(old.rpartition(":")[2]))):
        new = ensure_server(served.home).address
    assert new != old
    assert (served.home.server / "port").read_text().strip() == new.rpartition(":")[2], "the next server's first choice"


def test_ui_answers_on_loopback_even_if_its_first_choice_of_port_is_taken(home: Home) -> None:
    (home.server / "port").write_text(str(free_pair()))
    with socket.create_server(("127.0.0.1", int((home.server / "port").read_text()) + 1)):
        state = ensure_server(home, ui=True)
    assert state.ui is not None
    assert state.ui.startswith("http://127.0.0.1:")
    with urllib.request.urlopen(state.ui, timeout=10) as answer:
        assert answer.status == 200
    assert ensure_server(home, ui=True) == state


def free_pair() -> int:
    """A port that is free at present, together with the next one."""
    for port in range(34_000, 36_000, 2):
        pair = [("127.0.0.1", port), ("127.0.0.1", port + 1)]
        with contextlib.suppress(OSError), socket.create_server(pair[0]), socket.create_server(pair[1]):
            return port
    raise AssertionError("no free ports")


def test_lock_that_is_not_inherited_is_refused(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the lock, the started server would be alive but not visible, for example on a network file system."""
    monkeypatch.setattr("treadle.orchestrator.embedded.server.is_held", lambda path: False)
    with pytest.raises(UsageError, match=r"file locks do not work(.|\n)*TREADLE_HOME"):
        ensure_server(home)
    monkeypatch.undo()
    assert wait_free(home.server / "alive.lock", 60)


def test_state_of_a_dead_server_is_not_believed(home: Home) -> None:
    """The process id and port now belong to another live process."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        write_state(home.server / "state.json", ServerState(f"127.0.0.1:{port}", os.getpid(), NAMESPACE, None))
        (home.server / "pid").write_text(str(os.getpid()))
        assert running_server(home) is None
    assert not end_server(home)


def test_lock_of_an_unknown_process_ends_no_process(home: Home) -> None:
    """The pid file names this test, which does not hold the lock and must survive."""
    (home.server / "pid").write_text(str(os.getpid()))
    lock = home.server / "alive.lock"
    hold = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); print(1, flush=True); input()"
    command = [sys.executable, "-c", hold, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert server_alive(home)
        with pytest.raises(TreadleError, match="an unknown process holds"):
            end_server(home)
        holder.communicate(b"\n")


async def test_server_that_hangs_once_it_has_let_us_in_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    async def connect(*_: object, **__: object) -> object:
        return SimpleNamespace(workflow_service=SimpleNamespace(describe_namespace=lambda _: asyncio.Event().wait()))

    monkeypatch.setattr("temporalio.client.Client.connect", connect)
    monkeypatch.setattr(server, "_ANSWER_TIMEOUT", 0.01)
    assert not await server._prepare_namespace("127.0.0.1:1")  # private: one step of the start


def test_damaged_database_is_named(home: Home) -> None:
    (home.server / "temporal.db").write_bytes(b"not SQLite" * 1000)
    with pytest.raises(Unreachable, match=r"database is damaged\n.*Move it away.*temporal\.db"):
        ensure_server(home)
    assert not server_alive(home)


def test_database_of_a_broken_off_first_start_is_recreated(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    program = home.path / "temporal"
    database = home.server / "temporal.db"
    program.write_text(f"#!/bin/sh\nprintf 'half of it' > {database}\necho database or disk is full\nexit 1\n")
    program.chmod(0o700)
    with monkeypatch.context() as full:
        full.setattr("treadle.orchestrator.embedded.server.find_program", lambda: str(program))
        with pytest.raises(Unreachable, match="the disk is full"):
            ensure_server(home)
    assert has_unfinished_database(home)
    assert database.read_text() == "half of it"
    assert ensure_server(home).pid
    assert not has_unfinished_database(home)


def test_database_of_a_later_start_that_broke_off_is_kept(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    ensure_server(home)
    end_server(home)
    size = (home.server / "temporal.db").stat().st_size
    monkeypatch.setattr("treadle.orchestrator.embedded.server.find_program", lambda: "/bin/false")
    with pytest.raises(Unreachable):
        ensure_server(home)
    assert not has_unfinished_database(home)
    assert (home.server / "temporal.db").stat().st_size == size


def test_locked_database_is_named(home: Home) -> None:
    import sqlite3

    database = sqlite3.connect(home.server / "temporal.db", isolation_level=None)
    try:
        database.execute("BEGIN EXCLUSIVE")
        with pytest.raises(Unreachable, match="another process has its database open"):
            ensure_server(home)
    finally:
        database.close()


def test_failure_without_a_known_cause_shows_the_log(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    program = home.path / "temporal"
    program.write_text("#!/bin/sh\necho strange things happened\nexit 3\n")
    program.chmod(0o700)
    monkeypatch.setattr("treadle.orchestrator.embedded.server.find_program", lambda: str(program))
    with pytest.raises(Unreachable, match="strange things happened"):
        ensure_server(home)
