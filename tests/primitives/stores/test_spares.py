from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from mmap import ACCESS_WRITE
from pathlib import Path

import numpy as np
import pytest

from treadle.primitives.errors import StoreError
from treadle.primitives.stores import page_pool
from treadle.primitives.stores.file_views import LEAST
from treadle.primitives.stores.kept_mappings import KeptMappings
from treadle.primitives.stores.page_pool import Spares
from treadle.primitives.stores.shared_memory import HostFolder


@pytest.fixture
def folder(tmp_path: Path) -> HostFolder:
    return HostFolder(tmp_path / "user" / "environment")


def _inode(folder: HostFolder, name: str) -> int:
    return folder.path(name).stat().st_ino


def _names(folder: HostFolder) -> list[str]:
    return os.listdir(folder.root / ".spares")


def test_a_block_takes_the_memory_of_one_that_was_removed(folder: HostFolder) -> None:
    folder.put("r1/s/a", [b"1" * LEAST, b"2" * LEAST])
    folder.path("r1/s/a").chmod(0o400)  # as in a checked block
    before = _inode(folder, "r1/s/a")
    folder.delete_run("r1")
    folder.put("r2/s/b", [b"3" * LEAST])
    assert _inode(folder, "r2/s/b") == before
    assert folder.map("r2/s/b") == b"3" * LEAST
    assert stat.S_IMODE(folder.path("r2/s/b").stat().st_mode) == 0o600
    assert _names(folder) == []


@pytest.mark.parametrize(("spare", "kept"), [(20 << 20, 1 << 30), (16 << 20, 1 << 30), (20 << 20, 0)])
def test_a_large_block_of_many_buffers_is_copied_into_the_pages_of_another(
    folder: HostFolder, monkeypatch: pytest.MonkeyPatch, spare: int, kept: int
) -> None:
    mappings = KeptMappings(kept_from=1, most=kept, access=ACCESS_WRITE)
    monkeypatch.setattr(page_pool, "_mappings", mappings)
    random = np.random.default_rng(7)
    content = [random.bytes(length) for length in (1, 4 << 20, 0, 3, 12 << 20, 64, 1_000_000)]
    folder.put("r1/s/a", [bytes(spare)])
    before = _inode(folder, "r1/s/a")
    folder.delete_run("r1")
    folder.put("r2/s/b", content)
    assert _inode(folder, "r2/s/b") == before
    assert folder.map("r2/s/b") == b"".join(content)
    folder.delete_run("r2")
    folder.put("r3/s/c", content[::-1])
    assert folder.map("r3/s/c") == b"".join(content[::-1]), "also into a mapping that was kept"


def test_a_smaller_spare_grows(folder: HostFolder) -> None:
    folder.put("r1/s/a", [b"1" * LEAST])
    before = _inode(folder, "r1/s/a")
    folder.delete_run("r1")
    folder.put("r2/s/b", [b"2" * 3 * LEAST])
    assert (_inode(folder, "r2/s/b"), bytes(folder.map("r2/s/b"))) == (before, b"2" * 3 * LEAST)


def test_the_smallest_that_is_large_enough_is_taken(folder: HostFolder) -> None:
    for name, size in (("small", 1), ("fitting", 3), ("large", 5)):
        folder.put(f"r1/s/{name}", [bytes(size * LEAST)])
    wanted = _inode(folder, "r1/s/fitting")
    folder.delete_run("r1")
    folder.put("r2/s/b", [bytes(2 * LEAST)])
    assert _inode(folder, "r2/s/b") == wanted


def test_file_that_a_process_maps_is_never_overwritten(folder: HostFolder) -> None:
    folder.put("r1/s/a", [b"1" * LEAST])
    view = folder.map("r1/s/a")
    folder.delete_run("r1")
    folder.put("r2/s/b", [b"2" * LEAST])
    assert view == b"1" * LEAST
    assert len(_names(folder)) == 1, "it waits until nobody looks at it"
    before = _inode(folder, f".spares/{_names(folder)[0]}")
    view.release()
    del view
    folder.put("r2/s/c", [b"3" * LEAST])
    assert _inode(folder, "r2/s/c") == before


def test_another_process_that_maps_it_counts_too(folder: HostFolder) -> None:
    folder.put("r1/s/a", [b"1" * LEAST])
    code = (
        "import sys\nfrom treadle.primitives.stores.shared_memory import HostFolder\n"
        "view = HostFolder(sys.argv[1]).map('r1/s/a')\nprint(flush=True)\nsys.stdin.readline()\n"
        "assert view == b'1' * len(view), 'it was written again'"
    )
    command = [sys.executable, "-c", code, str(folder.root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        folder.delete_run("r1")
        folder.put("r2/s/b", [b"2" * LEAST])
        reader.communicate(b"\n")
    assert reader.returncode == 0


def test_a_spare_that_cannot_be_opened_leaves_no_remainder(folder: HostFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.put("r1/s/a", [b"1" * LEAST])
    folder.delete_run("r1")

    def refused(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(StoreError) as caught:
        folder.put("r2/s/b", [b"2" * LEAST])
    assert caught.value.retryable
    assert os.listdir(folder.root / "r2" / "s") == []


def test_small_and_excess_blocks_are_not_kept(folder: HostFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.put("r1/s/small", [bytes(LEAST - 1)])
    folder.put("r1/s/large", [bytes(LEAST)])
    monkeypatch.setattr(
        page_pool, "_SHARE", os.statvfs(folder.root).f_blocks
    )  # the space is one unit of the file system
    folder.delete_run("r1")
    assert _names(folder) == []


def test_no_more_files_are_kept_than_are_quickly_looked_through(
    folder: HostFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_pool, "_MOST", 2)
    for run in ("r1", "r2"):
        for name in "abc":
            folder.put(f"{run}/s/{name}", [bytes(LEAST)])
        folder.delete_run(run)
        assert len(_names(folder)) == 2


def test_spares_are_not_listed_as_a_run(folder: HostFolder) -> None:
    folder.put("r1/s/a", [bytes(LEAST)])
    folder.delete_run("r1")
    assert folder.runs() == []


def test_dropping_spares_minds_their_age(folder: HostFolder) -> None:
    folder.put("r1/s/a", [bytes(LEAST)])
    folder.delete_run("r1")
    folder.spares.drop(3600)
    assert len(_names(folder)) == 1
    folder.spares.drop()
    assert _names(folder) == []


def test_full_shared_memory_takes_the_spares_back(folder: HostFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.put("r1/s/a", [bytes(LEAST)])
    folder.delete_run("r1")

    def full(descriptor: int, vectors: object) -> int:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "writev", full)
    with pytest.raises(StoreError, match="full"):
        folder.put("r2/s/b", [bytes(10)])
    assert _names(folder) == []


def test_files_that_are_all_read_leave_a_block_to_a_new_file(
    folder: HostFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_pool, "try_lock", lambda _: False)
    folder.put("r1/s/a", [b"1" * LEAST])
    before = _inode(folder, "r1/s/a")
    folder.delete_run("r1")
    folder.put("r2/s/b", [b"2" * LEAST])
    assert _inode(folder, "r2/s/b") != before
    assert folder.map("r2/s/b") == b"2" * LEAST


def test_two_that_want_the_only_spare_do_not_share_it(folder: HostFolder) -> None:
    folder.put("r1/s/a", [bytes(LEAST)])
    folder.delete_run("r1")
    both = Spares(folder.root / ".spares"), Spares(folder.root / ".spares")
    content = [bytes(LEAST)]
    assert [one.write(folder.root / f"taken-{index}", content, LEAST) for index, one in enumerate(both)] == [
        True,
        False,
    ]


@pytest.mark.parametrize(("available", "left"), [(124, 0), (125, 1)])
def test_no_spares_are_kept_where_the_machine_is_short_of_memory(tmp_path: Path, available: int, left: int) -> None:
    (tmp_path / "meminfo").write_text(f"MemTotal: 1000 kB\nMemAvailable: {available} kB\nHugePages_Total: 0\n")
    kept = Spares(tmp_path / "kept", tmp_path / "meminfo")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "block").write_bytes(bytes(LEAST))
    kept.keep(tmp_path / "run")
    kept.drop(3600)
    assert len(os.listdir(tmp_path / "kept")) == left


def test_a_system_that_tells_nothing_of_its_memory_is_not_short_of_it(tmp_path: Path) -> None:
    kept = Spares(tmp_path / "kept", tmp_path / "none")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "block").write_bytes(bytes(LEAST))
    kept.keep(tmp_path / "run")
    kept.drop(3600)
    assert len(os.listdir(tmp_path / "kept")) == 1


# -- the spares that are kept and taken ----------------------------------------------------------------------------


def _keep(folder: HostFolder, run: str, *sizes: int) -> dict[int, int]:
    """Remove a run with blocks of these sizes. Returns size -> inode."""
    for index, size in enumerate(sizes):
        folder.put(f"{run}/s/{index}", [bytes(size)])
    found = {size: _inode(folder, f"{run}/s/{index}") for index, size in enumerate(sizes)}
    folder.delete_run(run)
    return found


def _sizes(folder: HostFolder) -> list[int]:
    return sorted((folder.root / ".spares" / name).stat().st_size // LEAST for name in _names(folder))


def test_small_blocks_are_not_kept_however_much_room_there_is(folder: HostFolder) -> None:
    _keep(folder, "r1", LEAST - 1)
    assert not (folder.root / ".spares").exists()
    _keep(folder, "r2", LEAST - 1, LEAST)
    assert _sizes(folder) == [1]


def _remove(kept: Spares, run: Path, *sizes: int) -> None:
    """Remove a run whose files took no spares."""
    run.mkdir()
    for index, size in enumerate(sizes):
        (run / str(index)).write_bytes(bytes(size * LEAST))
    kept.keep(run)


def test_kept_spares_reduce_the_room_for_later_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system, kept = os.statvfs(tmp_path), Spares(tmp_path / "kept")
    monkeypatch.setattr(page_pool, "_SHARE", system.f_blocks * system.f_frsize // (5 * LEAST // 2))
    _remove(kept, tmp_path / "r1", 3, 1)
    assert len(os.listdir(tmp_path / "kept")) == 1
    _remove(kept, tmp_path / "r2", 1, 1)
    _remove(kept, tmp_path / "r3", 1, 1)
    assert [path.stat().st_size for path in (tmp_path / "kept").iterdir()] == [LEAST, LEAST]


def test_none_is_kept_where_more_are_than_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Spares(tmp_path / "kept")
    _remove(kept, tmp_path / "r1", 1, 1, 1)
    monkeypatch.setattr(page_pool, "_MOST", 1)
    _remove(kept, tmp_path / "r2", 2)
    assert [path.stat().st_size for path in (tmp_path / "kept").iterdir()] == [LEAST] * 3


@pytest.mark.parametrize(("wanted", "taken"), [(2, 2), (3, 4), (4, 4), (9, 6)])
def test_best_fitting_spare_is_taken_and_cut_or_grown(folder: HostFolder, wanted: int, taken: int) -> None:
    kept = _keep(folder, "r1", *(size * LEAST for size in (1, 2, 4, 6)))
    folder.put("r2/s/b", [b"1" * (wanted * LEAST)])
    assert _inode(folder, "r2/s/b") == kept[taken * LEAST]
    assert folder.map("r2/s/b") == b"1" * (wanted * LEAST)


def test_one_that_is_still_read_is_passed_over_and_stays(folder: HostFolder) -> None:
    folder.put("r1/s/read", [b"1" * LEAST])
    view = folder.map("r1/s/read")
    kept = _keep(folder, "r1", 2 * LEAST)
    before = len(os.listdir("/proc/self/fd"))
    folder.put("r2/s/b", [bytes(LEAST)])
    assert _inode(folder, "r2/s/b") == kept[2 * LEAST]
    assert _sizes(folder) == [1]
    assert view == b"1" * LEAST
    assert len(os.listdir("/proc/self/fd")) == before


def test_no_more_than_a_few_are_looked_at(folder: HostFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []

    def somebody_reads_it(descriptor: int) -> bool:
        looked.append(descriptor)
        return False

    monkeypatch.setattr(page_pool, "try_lock", somebody_reads_it)
    _keep(folder, "r1", *[LEAST] * 10)
    folder.put("r2/s/b", [bytes(LEAST)])
    assert len(looked) == 8
    assert len(_names(folder)) == 10


def test_spare_taken_by_another_process_is_skipped(folder: HostFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, listed = _keep(folder, "r1", LEAST, 2 * LEAST), Spares._names
    monkeypatch.setattr(Spares, "_names", lambda self: [f"{LEAST:016x}-", *listed(self)])
    folder.put("r2/s/b", [bytes(LEAST)])
    assert _inode(folder, "r2/s/b") == kept[LEAST]
    folder.spares.drop()
    assert _names(folder) == []


def test_removal_of_a_run_tolerates_a_vanished_file(tmp_path: Path) -> None:
    kept, run = Spares(tmp_path / "kept"), tmp_path / "run"
    run.mkdir()
    (run / "gone").symlink_to(tmp_path / "nowhere")
    (run / "block").write_bytes(bytes(LEAST))
    kept.keep(run)
    assert len(os.listdir(tmp_path / "kept")) == 1
