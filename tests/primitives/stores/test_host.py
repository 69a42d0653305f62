from __future__ import annotations

import errno
import os
import resource
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from treadle.primitives.errors import MissingError, StoreError, UsageError
from treadle.primitives.stores.shared_memory import HostFolder, host_id


@pytest.fixture
def folder(tmp_path: Path) -> HostFolder:
    return HostFolder(tmp_path / "user" / "environment")


def test_a_block_is_mapped_as_it_was_put_and_read_only(folder: HostFolder) -> None:
    folder.put("run/segment[1].x/0.1.abc", [b"12", memoryview(b"345"), b""])
    view = folder.map("run/segment[1].x/0.1.abc")
    assert bytes(view) == b"12345"
    assert view.readonly


def test_files_are_private_and_so_are_folders(folder: HostFolder) -> None:
    folder.put("run/s/a", [b"1"])
    path = folder.path("run/s/a")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for above in (path.parent, path.parent.parent, folder.root, folder.root.parent):
        assert stat.S_IMODE(above.stat().st_mode) == 0o700


def test_a_missing_block_is_a_missing_error(folder: HostFolder) -> None:
    folder.put("run/s/a", [b"1"])
    for name in ("run/s/b", "run/s", "other/x/y", "run/s/a/below"):
        with pytest.raises(MissingError):
            folder.map(name)


def test_mappings_outlive_the_deletion_of_their_run(folder: HostFolder) -> None:
    folder.put("r1/s/a", [b"1" * 10_000])
    folder.put("r2/s/a", [b"2"])
    view = folder.map("r1/s/a")
    folder.delete_run("r1")
    folder.delete_run("r1")
    assert view == b"1" * 10_000
    assert bytes(folder.map("r2/s/a")) == b"2"
    with pytest.raises(MissingError):
        folder.map("r1/s/a")


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.ENOMEM], ids=errno.errorcode.get)
def test_full_shared_memory_is_retryable_elsewhere_and_leaves_no_remainder(
    folder: HostFolder, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    def full(descriptor: int, views: object) -> int:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "writev", full)
    with pytest.raises(StoreError, match="shared memory is full") as caught:
        folder.put("run/s/a", [b"1"])
    assert caught.value.retryable
    assert os.listdir(folder.root / "run" / "s") == []


def test_torn_block_is_invisible(folder: HostFolder) -> None:
    torn: list[int] = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            for name in os.listdir(folder.root / "run"):
                if name.startswith("b") and len(folder.map(f"run/{name}")) != 8_000_000:
                    torn.append(len(folder.map(f"run/{name}")))

    folder.put("run/b", [bytes(8_000_000)])
    watcher = threading.Thread(target=watch)
    watcher.start()
    for index in range(20):
        folder.put(f"run/b{index}", [bytes(4_000_000), bytes(4_000_000)])
    done.set()
    watcher.join()
    assert not torn


def test_several_may_delete_a_folder_at_once(folder: HostFolder) -> None:
    for index in range(300):
        folder.put(f"run/{index}/a", [b"1"])
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(folder.delete_run, ["run"] * 4))
    assert folder.runs() == []


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (2 * len(os.listdir("/proc/self/fd")) + 20, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("few_descriptors")
def test_more_blocks_than_descriptors_can_be_held_at_once(folder: HostFolder) -> None:
    held = []
    for index in range(150):
        folder.put(f"run/{index}", [bytes([index]) * 100_000])
        held.append(folder.map(f"run/{index}"))
    assert [view[-1] for view in held] == list(range(150))
    for descriptor in [os.open("/dev/null", os.O_RDONLY) for _ in range(5)]:
        os.close(descriptor)


def test_a_block_others_may_write_is_copied_not_mapped(folder: HostFolder) -> None:
    folder.put("run/a", [b"1" * 100_000])
    folder.path("run/a").chmod(0o666)
    view = folder.map("run/a")
    with open(folder.path("run/a"), "r+b") as file:
        file.write(b"2" * 100_000)
    assert view == b"1" * 100_000


@pytest.mark.parametrize("mode", [0o750, 0o755, 0o777, 0o1777])
def test_a_folder_open_to_others_is_refused(tmp_path: Path, mode: int) -> None:
    root = tmp_path / "shared"
    root.mkdir()
    root.chmod(mode)
    with pytest.raises(UsageError, match=f"{mode:04o}"):
        HostFolder(root)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    squatted = tmp_path / "treadle-1000"
    squatted.mkdir(0o700)
    os.chown(squatted, 12345, -1)
    with pytest.raises(UsageError, match="not a folder of yours"):
        HostFolder(squatted / "environment")


def test_a_link_instead_of_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(0o700)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="not a folder of yours"):
        HostFolder(tmp_path / "link")


def test_processes_of_one_host_agree_on_its_id(folder: HostFolder) -> None:
    code = f"from treadle.primitives.stores.shared_memory import host_id; print(host_id({str(folder.root)!r}))"
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert result.stdout.strip() == folder.host_id == host_id(folder.root)


@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="needs shared memory of its own")
def test_other_memory_is_another_host(folder: HostFolder) -> None:
    assert host_id("/dev/shm") != host_id("/proc")


def test_a_block_put_by_another_process_that_died_is_mapped(folder: HostFolder) -> None:
    code = f"""
import os
from treadle.primitives.stores.shared_memory import HostFolder
HostFolder({str(folder.root)!r}).put("run/a", [b"from the dead"])
os._exit(9)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    assert bytes(folder.map("run/a")) == b"from the dead"
