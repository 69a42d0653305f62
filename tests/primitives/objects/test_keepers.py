"""Keepers, handles and callers in processes of their own, some of which are killed."""

from __future__ import annotations

import os
import pickle
import queue
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import pytest
from eventually import eventually
from primitives.objects.counting import counting

from treadle.primitives.addresses import parse
from treadle.primitives.errors import UsageError
from treadle.primitives.objects import (
    CallRefused,
    CallWaitExpired,
    Counter,
    CyclicBarrier,
    Flag,
    Handle,
    Keepers,
    List,
    Lock,
    Map,
    ObjectLost,
    ObjectMissing,
    Queue,
    Reference,
    read,
    shared,
)
from treadle.primitives.objects.client_session import Access
from treadle.primitives.objects.handle import session_of
from treadle.primitives.objects.messages import EndSession, ShardView, address_of
from treadle.primitives.wire import NotAuthentic, connect
from treadle.primitives.wire.blocking_connection import Connection

CALLERS = Path(__file__).parent / "callers.py"


@pytest.fixture(scope="module")
def keepers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keepers]:
    with Keepers(tmp_path_factory.mktemp("objects"), shards=2) as found:
        yield found


def started(role: str, handle: Handle[Any]) -> subprocess.Popen[bytes]:
    child = subprocess.Popen([sys.executable, str(CALLERS), role], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    stdin: IO[bytes] | None = child.stdin
    assert stdin is not None
    stdin.write(pickle.dumps(handle))
    stdin.close()
    return child


def first_line(child: subprocess.Popen[bytes]) -> bytes:
    assert child.stdout is not None
    return child.stdout.readline()


def kill(child: subprocess.Popen[bytes]) -> None:
    """Kill it, and wait for its end."""
    child.kill()
    child.wait()
    assert child.stdout is not None
    child.stdout.close()


def ended(*children: subprocess.Popen[bytes]) -> None:
    for child in children:
        assert child.wait(90) == 0
        assert child.stdout is not None
        child.stdout.close()


def kill_primary(keepers: Keepers, name: str) -> None:
    access = keepers.access
    primary = access.chain(access.shard_of(name)).newest().primary
    os.kill(keepers.processes[primary], signal.SIGKILL)


def test_calls_of_several_processes_add_up(keepers: Keepers) -> None:
    hits = keepers.object("hits", Counter)
    ended(*[started("count", hits) for _ in range(3)])
    assert hits.get() == 600


def test_a_forked_process_has_sessions_of_its_own(keepers: Keepers) -> None:
    hits = keepers.object("forked", Counter)
    ended(started("fork", hits))
    assert hits.get() == 3


def test_processes_meet_at_a_barrier(keepers: Keepers) -> None:
    barrier = keepers.object("step", CyclicBarrier, 3)
    ended(*[started("meet", barrier) for _ in range(3)])
    assert barrier.waiting() == 0


def test_a_class_of_the_caller_runs_at_the_keeper(keepers: Keepers) -> None:
    @shared
    class Process:
        @read
        def id(self) -> int:
            return os.getpid()

    assert keepers.object("process", Process).id() in keepers.processes.values()


def test_an_error_has_the_traceback_of_the_keeper(keepers: Keepers) -> None:
    with pytest.raises(IndexError) as raised:
        keepers.object("empty", List).get(4)
    assert "return self.items[index]" in str(raised.value.__cause__)


def test_a_function_of_the_caller_is_sent_by_value(keepers: Keepers) -> None:
    words = keepers.object("words", Map)
    words.merge("a", 1, lambda one, other: one + other)
    assert words.merge("a", 2, lambda one, other: one + other) == 3


def test_a_caller_waits_no_longer_than_it_wants(keepers: Keepers) -> None:
    queue = keepers.object("queue", Queue)
    with pytest.raises(CallWaitExpired):
        queue.within(0.05).get()
    queue.put("late")
    assert queue.get() == "late"


def test_a_lock_is_a_context_manager_with_a_fencing_token(keepers: Keepers) -> None:
    lock = keepers.object("lock", Lock)
    tokens = []
    for _ in range(2):
        with lock as token:
            assert lock.locked()
            tokens.append(token)
    assert tokens[1] > tokens[0]
    assert not lock.locked()


def test_threads_exclude_each_other(keepers: Keepers) -> None:
    lock, cell = keepers.object("lock", Lock), keepers.object("cell", Reference, 0)

    def work() -> None:
        for _ in range(25):
            with lock:
                cell.set(cell.get() + 1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cell.get() == 100


def test_an_object_that_exists_is_found(keepers: Keepers) -> None:
    keepers.object("once", Counter, 5).increment()
    assert keepers.object("once", Counter, 99).get() == 6
    with pytest.raises(TypeError, match="is a Counter"):
        keepers.object("once", Lock)


def test_a_dropped_object_is_missing(keepers: Keepers) -> None:
    gone = keepers.object("gone", Counter)
    assert keepers.drop("gone")
    with pytest.raises(ObjectMissing):
        gone.get()
    assert not keepers.drop("gone")


def test_large_arguments_are_refused_and_smaller_ones_pass(keepers: Keepers) -> None:
    cell = keepers.object("large", Reference)
    cell.set(b"x" * (4 << 20))
    assert len(cell.get()) == 4 << 20
    with pytest.raises(CallRefused, match="bytes"):
        cell.set(b"x" * (9 << 20))
    assert len(cell.get()) == 4 << 20


def test_a_handle_has_the_methods_of_the_class_only(keepers: Keepers) -> None:
    hits = keepers.object("hits", Counter)
    assert "increment" in dir(hits)
    for name in ("value", "missing", "_session_ended"):
        with pytest.raises(AttributeError):
            getattr(hits, name)
    with pytest.raises(UsageError, match="@shared"):
        keepers.object("plain", dict)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt also where a shell has started the tests in its background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_wait_takes_no_item(keepers: Keepers) -> None:
    queue = keepers.object("interrupted", Queue)
    thread = threading.main_thread().ident
    assert thread is not None
    timer = threading.Timer(0.3, signal.pthread_kill, (thread, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        queue.get()
    queue.put(1)
    assert queue.size() == 1


def test_a_signal_handler_calls_the_object_for_which_its_thread_waits(keepers: Keepers) -> None:
    flag = keepers.object("signalled", Flag)
    thread = threading.main_thread().ident
    assert thread is not None
    before = signal.signal(signal.SIGUSR1, lambda *_: flag.set())
    timer = threading.Timer(0.3, signal.pthread_kill, (thread, signal.SIGUSR1))
    timer.start()
    try:
        flag.within(90).wait()
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
    assert flag.is_set()


def test_a_caller_without_the_key_is_refused(keepers: Keepers) -> None:
    for name in keepers.processes:
        with pytest.raises(NotAuthentic):
            connect(address_of(name), name, b"x" * 32, deadline=time.monotonic() + 10)


def test_silent_strangers_do_not_keep_callers_out(keepers: Keepers) -> None:
    (name, *_) = keepers.processes
    hits = keepers.object("hits", Counter)
    before = hits.get()
    strangers = [socket.socket(socket.AF_UNIX) for _ in range(200)]
    for stranger in strangers:
        stranger.connect(f"\0{parse(address_of(name)).host}")
    child = started("count", hits)
    ended(child)
    assert hits.get() == before + 200
    for stranger in strangers:
        stranger.close()


def test_locks_of_a_killed_process_are_released(tmp_path: Path) -> None:
    with Keepers(tmp_path, session=600.0) as keepers:
        lock = keepers.object("lock", Lock)
        holder = started("hold", lock)
        assert first_line(holder) == b"held\n"
        assert lock.try_acquire() is None
        kill(holder)
        assert lock.within(90).acquire()


def test_killed_process_that_waited_gets_nothing_that_comes_later(tmp_path: Path) -> None:
    """The keeper stands still meanwhile, so it reads the later call together with the end of the connection."""
    with Keepers(tmp_path, session=600.0) as keepers:
        queue = keepers.object("queue", Queue)
        waiter = started("take", queue)
        assert first_line(waiter) == b"0\n"
        time.sleep(0.5)
        (keeper,) = keepers.processes.values()
        os.kill(keeper, signal.SIGSTOP)
        kill(waiter)
        threading.Timer(0.3, os.kill, (keeper, signal.SIGCONT)).start()
        queue.put("kept")
        assert queue.within(30).get() == "kept"


def test_locks_survive_a_lost_connection_when_the_caller_returns(keepers: Keepers) -> None:
    lock = keepers.object("connected", Lock)
    token = lock.acquire()
    session = keepers.access.session("connected")
    assert session._connection is not None  # private: only a fault closes it
    session._connection.close()
    time.sleep(2)  # the keeper has looked for this process
    assert lock.locked()
    lock.release()
    assert lock.acquire() > token
    lock.release()


def test_session_that_is_closed_while_it_is_renewed_is_not_connected_again(
    keepers: Keepers, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, renewals, send = list[Connection](), list[threading.Thread](), Connection.send
    session = session_of(keepers.object("closed in time", Counter))

    def counted(of: Access, keeper: str, seconds: float) -> Connection:
        made.append(connect_to(of, keeper, seconds))
        return made[-1]

    def renewed(connection: Connection, message: Any, *rest: Any, **more: Any) -> None:
        if isinstance(message, EndSession):
            renewals.append(threading.Thread(target=session.keep))
            renewals[0].start()
            renewals[0].join(0.2)  # it waits for the session's end
        send(connection, message, *rest, **more)

    connect_to = Access.connect
    monkeypatch.setattr(Access, "connect", counted)
    monkeypatch.setattr(Connection, "send", renewed)
    session.begin()
    session.close()
    renewals[0].join()
    assert [connection.closed for connection in made] == [True]


def test_a_session_of_a_silent_thread_is_kept(tmp_path: Path) -> None:
    with Keepers(tmp_path, session=1.0) as keepers:
        lock = keepers.object("lock", Lock)
        with lock:
            time.sleep(3)
            assert lock.locked()


def test_keepers_end_with_the_killed_process_that_started_them(tmp_path: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, str(CALLERS), "start"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert owner.stdin is not None
    assert owner.stdout is not None
    with owner.stdin, owner.stdout:
        owner.stdin.write(pickle.dumps(str(tmp_path)))
        owner.stdin.close()
        pids = [int(pid) for pid in owner.stdout.readline().strip(b"[]\n").split(b",")]
        owner.kill()
        owner.wait()
        try:
            eventually(lambda: not any(map(_alive, pids)))
        finally:
            os.killpg(owner.pid, signal.SIGKILL)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_objects_in_memory_are_lost_with_their_keeper_and_say_so(tmp_path: Path) -> None:
    with Keepers(tmp_path) as keepers:
        hits = keepers.object("hits", Counter)
        hits.increment()
        kill_primary(keepers, "hits")
        with pytest.raises(ObjectLost, match="hits is lost"):
            hits.increment()
        again = keepers.object("hits", Counter)
        assert again.increment() == 1
        with pytest.raises(ObjectLost):
            hits.get()


def test_a_process_that_used_a_lost_object_uses_a_new_one_by_its_handle(tmp_path: Path) -> None:
    taken: queue.Queue[Handle[Counter]] = queue.Queue()
    with ThreadPoolExecutor(1) as other, Keepers(tmp_path) as keepers:
        for _ in range(2):
            taken.put(keepers.object("hits", Counter))
            assert other.submit(lambda: taken.get().increment()).result() == 1
            kill_primary(keepers, "hits")
            eventually(lambda: len(keepers.processes) == 1 and _serves(keepers, "hits"))


def _serves(keepers: Keepers, name: str) -> bool:
    return keepers.access.chain(keepers.access.shard_of(name)).newest().primary in keepers.processes


def test_an_object_is_made_although_its_keeper_was_killed_meanwhile(tmp_path: Path) -> None:
    begun = tmp_path / "begun"

    @shared
    class Deadly:
        def __init__(self) -> None:
            if not begun.exists():
                begun.touch()
                os.kill(os.getpid(), signal.SIGKILL)

        def increment(self) -> int:
            return 1

    with Keepers(tmp_path / "keepers") as keepers:
        assert keepers.object("deadly", Deadly).increment() == 1
        kill_primary(keepers, "hits")
        assert keepers.object("hits", Counter).increment() == 1


def test_a_shard_of_which_only_a_joining_backup_lives_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.primitives.objects.keepers.ABANDONED", 1.0)
    with Keepers(tmp_path, keepers=2) as keepers:
        hits = keepers.object("hits", Counter)
        chain = keepers.access.chain(0)
        view = chain.newest()
        (other,) = set(keepers.processes) - {view.primary}
        chain.create(ShardView(view.epoch + 1, "unix:none#0", (other,), view.incarnation))
        os.kill(keepers.processes[view.primary], signal.SIGKILL)
        with pytest.raises(ObjectLost):
            hits.increment()


@pytest.mark.parametrize("settings", [{"replicas": 2}, {"replicas": 3}, {"durability": "store"}], ids=str)
def test_answered_calls_survive_the_kill_of_a_keeper_and_count_once(tmp_path: Path, settings: dict[str, Any]) -> None:
    count_under_kills(tmp_path, settings, kills=2)


@pytest.mark.chaos
@pytest.mark.timeout(0)
@pytest.mark.parametrize("settings", [{"replicas": 2}, {"replicas": 3}, {"durability": "store"}], ids=str)
def test_answered_calls_survive_many_kills(tmp_path: Path, settings: dict[str, Any]) -> None:
    count_under_kills(tmp_path, settings, kills=100)


def count_under_kills(folder: Path, settings: dict[str, Any], kills: int) -> None:
    """Threads count while primaries are killed."""
    with Keepers(folder, **settings) as keepers, counting(keepers.object("hits", Counter), threads=4) as count_on:
        for _ in range(kills):
            time.sleep(random.uniform(0, 0.3))
            eventually(lambda: keepers.copies("hits") == settings.get("replicas", 1))
            kill_primary(keepers, "hits")  # at once: a backup that stands still for 0.8 s is left out
            count_on()


def test_objects_in_the_store_are_there_for_the_next_keepers(tmp_path: Path) -> None:
    with Keepers(tmp_path, durability="store") as keepers:
        queue = keepers.object("queue", Queue)
        for number in range(1200):  # more than a snapshot covers
            queue.put(number)
    with Keepers(tmp_path, durability="store") as keepers:
        queue = keepers.object("queue", Queue)
        assert queue.get_many(3) == [0, 1, 2]
        assert queue.size() == 1197
    logged = list((tmp_path / "store/objects/0/log").iterdir())
    assert len(logged) < 400


@pytest.mark.parametrize(
    "settings", [{"replicas": 0}, {"replicas": 2, "keepers": 1}, {"replicas": 2, "durability": "store"}]
)
def test_settings_that_cannot_be_kept_are_refused(tmp_path: Path, settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Keepers(tmp_path, **settings)
