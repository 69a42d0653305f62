from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from mmap import mmap
from pathlib import Path

import pytest
from primitives.peers.faults import HEALTHY, Fault, FaultyPath
from primitives.peers.hosts import RUN, at_once, content, reader, served, soon

from treadle.primitives.errors import CorruptError, MissingError
from treadle.primitives.peers import host_cache
from treadle.primitives.stores.shared_memory import HostFolder
from treadle.primitives.wire import Identity, TimedOut, WireError

BLOCK = content(3_000_000)
NAME = "s/a.1.abc"


@pytest.fixture
def here(tmp_path: Path) -> HostFolder:
    return HostFolder(tmp_path / "here" / "host")


def files(host: HostFolder) -> list[str]:
    return sorted(str(path.relative_to(host.root)) for path in host.root.rglob("*") if path.is_file())


@pytest.mark.parametrize("size", [0, 1, 1 << 20, 3_000_000])
def test_a_block_is_brought_here_whole_and_mapped(
    tmp_path: Path, here: HostFolder, tls: Identity | None, size: int
) -> None:
    with served(tmp_path, tls) as (there, server), reader() as client:
        there.put(f"{RUN}/{NAME}", [BLOCK[:size]])
        view = client.fetch_to_host(server.address, NAME, size, here, soon())
        assert view == BLOCK[:size]
        assert view.readonly
        assert isinstance(view.obj, mmap) or size == 0
        server.close()
        assert client.fetch_to_host(server.address, NAME, size, here, soon()) == BLOCK[:size]
    assert files(here) == [f"{RUN}/{NAME}"]


def test_of_many_readers_of_a_host_one_pulls(tmp_path: Path, here: HostFolder) -> None:
    with served(tmp_path) as (there, server), FaultyPath(server.address, [HEALTHY]) as path, reader() as client:
        there.put(f"{RUN}/{NAME}", [BLOCK])
        with ThreadPoolExecutor(8) as pool:
            views = list(
                pool.map(lambda _: client.fetch_to_host(path.address, NAME, len(BLOCK), here, soon()), range(16))
            )
        assert all(view == BLOCK for view in views)
        assert sum(path.sizes) < 2 * len(BLOCK)
    assert files(here) == [f"{RUN}/{NAME}"]


READER = """
import os, sys, time
from pathlib import Path
from treadle.primitives.stores.shared_memory import HostFolder
from treadle.primitives.peers import PeerClient, host_cache

if sys.argv[3] == "die":
    def write_all(descriptor, views):
        os.write(descriptor, views[0])
        print("pulling", flush=True)
        time.sleep(60)
    host_cache.write_all = write_all
client = PeerClient("run-1", bytes(range(32)))
view = client.fetch_to_host(sys.argv[1], "s/a.1.abc", None, HostFolder(sys.argv[2]), time.monotonic() + 60)
print(len(view), flush=True)
"""


def start_reader(address: str, here: HostFolder, how: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", READER, address, str(here.root), how]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_of_many_processes_one_pulls(tmp_path: Path, here: HostFolder) -> None:
    with served(tmp_path) as (there, server), FaultyPath(server.address, [HEALTHY]) as path:
        there.put(f"{RUN}/{NAME}", [BLOCK])
        processes = [start_reader(path.address, here, "live") for _ in range(3)]
        assert [process.communicate(timeout=100)[0] for process in processes] == [f"{len(BLOCK)}\n"] * 3
        assert len(BLOCK) < sum(path.sizes) < 2 * len(BLOCK)


def test_a_puller_that_is_killed_lets_the_next_one_in(tmp_path: Path, here: HostFolder) -> None:
    with served(tmp_path) as (there, server), reader() as client:
        there.put(f"{RUN}/{NAME}", [BLOCK])
        dying = start_reader(server.address, here, "die")
        try:
            assert dying.stdout is not None
            assert dying.stdout.readline() == "pulling\n"
            with pytest.raises(TimedOut, match="another process"):
                client.fetch_to_host(server.address, NAME, None, here, at_once())
        finally:
            dying.kill()
            dying.communicate(timeout=60)
        assert [name for name in files(here) if not name.endswith(".lock")] == []
        assert client.fetch_to_host(server.address, NAME, None, here, soon()) == BLOCK
    assert files(here) == [f"{RUN}/{NAME}"]


@pytest.mark.parametrize("taken", [0, 1, 2])
def test_full_shared_memory_leaves_the_bytes_to_the_process(
    tmp_path: Path, here: HostFolder, monkeypatch: pytest.MonkeyPatch, taken: int
) -> None:
    """After `taken` writes of a megabyte the memory is full, with half of the next write done."""
    writes = iter(range(100))

    def write(descriptor: int, views: list[memoryview]) -> None:
        for view in views:
            if next(writes) >= taken:
                os.write(descriptor, view[: len(view) // 2])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.write(descriptor, view)

    with served(tmp_path) as (there, server), reader() as client:
        there.put(f"{RUN}/{NAME}", [BLOCK])
        monkeypatch.setattr(host_cache, "write_all", write)
        view = client.fetch_to_host(server.address, NAME, len(BLOCK), here, soon())
        assert view == BLOCK
        assert not isinstance(view.obj, mmap)
        assert client.fetch(server.address, [(NAME, 5, 5)], soon()) == [BLOCK[5:10]]
    assert files(here) == []


def test_cached_block_is_read_whole_when_the_kernel_returns_few_bytes(
    tmp_path: Path, here: HostFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel returns less than 2 GiB at once."""
    full, read = iter([False, False, True]), os.preadv

    def write(descriptor: int, views: list[memoryview]) -> None:
        if next(full):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.write(descriptor, views[0])

    monkeypatch.setattr(host_cache, "write_all", write)
    monkeypatch.setattr(os, "preadv", lambda descriptor, views, at: read(descriptor, [views[0][:900_000]], at))
    with served(tmp_path) as (there, server), reader() as client:
        there.put(f"{RUN}/{NAME}", [BLOCK])
        assert client.fetch_to_host(server.address, NAME, len(BLOCK), here, soon()) == BLOCK


def test_what_will_not_fit_is_not_begun(tmp_path: Path, here: HostFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_cache, "_fits", lambda descriptor, length: False)
    monkeypatch.delattr(host_cache, "write_all")
    with served(tmp_path) as (there, server), reader() as client:
        there.put(f"{RUN}/{NAME}", [BLOCK])
        assert client.fetch_to_host(server.address, NAME, len(BLOCK), here, soon()) == BLOCK
    assert files(here) == []


def test_a_block_that_is_gone_or_of_another_size_is_named(tmp_path: Path, here: HostFolder) -> None:
    with served(tmp_path) as (there, server), reader() as client:
        with pytest.raises(MissingError) as missing:
            client.fetch_to_host(server.address, NAME, 5, here, soon())
        there.put(f"{RUN}/{NAME}", [b"1234"])
        with pytest.raises(CorruptError, match=r"has 4 bytes.*not 5") as corrupt:
            client.fetch_to_host(server.address, NAME, 5, here, soon())
        assert missing.value.block == corrupt.value.block == NAME


@pytest.mark.parametrize("after", [0, 100, 1_500_000])
def test_a_pull_that_breaks_leaves_nothing_and_the_next_one_succeeds(
    tmp_path: Path, here: HostFolder, after: int
) -> None:
    with served(tmp_path) as (there, server), reader() as client:
        there.put(f"{RUN}/{NAME}", [BLOCK])
        with FaultyPath(server.address, [Fault("cut", after)]) as path, pytest.raises(WireError):
            client.fetch_to_host(path.address, NAME, len(BLOCK), here, soon())
        assert files(here) == []
        assert client.fetch_to_host(server.address, NAME, len(BLOCK), here, soon()) == BLOCK


def test_unfinished_block_is_invisible(tmp_path: Path, here: HostFolder) -> None:
    torn: list[int] = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            try:
                view = here.map(f"{RUN}/{NAME}")
            except MissingError:
                continue
            if len(view) != len(BLOCK):
                torn.append(len(view))

    with served(tmp_path) as (there, server), reader() as client:
        there.put(f"{RUN}/{NAME}", [BLOCK])
        watcher = threading.Thread(target=watch)
        watcher.start()
        for _ in range(10):
            client.fetch_to_host(server.address, NAME, len(BLOCK), here, soon())
            here.delete_run(RUN)
        done.set()
        watcher.join()
    assert torn == []


def test_a_lock_is_held_on_the_file_that_others_see(here: HostFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last holder removes it after it is opened and before it is locked."""
    path = here.path(f"{RUN}/{NAME}")
    flock, removals = fcntl.flock, iter(range(100))

    def late(descriptor: int, operation: int) -> None:
        if next(removals) == 0:
            os.unlink(lock_file())
        flock(descriptor, operation)

    def lock_file() -> Path:
        (found,) = path.parent.glob(".tmp-*.lock")
        return found

    monkeypatch.setattr(fcntl, "flock", late)
    with host_cache.one_puller(path, soon()):
        assert lock_file().exists()
        with pytest.raises(TimedOut), host_cache.one_puller(path, at_once()):
            pass
    assert files(here) == []
