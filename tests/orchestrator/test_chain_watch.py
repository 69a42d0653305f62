"""Announcements of new objects in a folder."""

from __future__ import annotations

import errno
import select
from collections.abc import Iterator
from pathlib import Path

import inotify_simple
import pytest

from treadle.orchestrator.run_store.chain_watch import MOST, ChainWatch
from treadle.primitives.stores.atomic_files import temporary_beside


@pytest.fixture
def begun() -> list[int]:
    """The descriptors of the watches that have begun."""
    return []


@pytest.fixture
def watch(tmp_path: Path, begun: list[int]) -> Iterator[ChainWatch]:
    """The watch of a folder that exists, on duty."""
    found = ChainWatch(tmp_path, begun.append)
    assert not found.announces()
    assert found.announces()
    yield found
    found.close()


def is_readable(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0)[0])


def test_a_new_file_is_announced_once(watch: ChainWatch, begun: list[int], tmp_path: Path) -> None:
    (descriptor,) = begun
    assert not is_readable(descriptor)
    (tmp_path / "00000000").touch()
    assert is_readable(descriptor)
    assert watch.take()
    assert not is_readable(descriptor)
    assert not watch.take()


def test_a_half_written_file_is_not_announced(watch: ChainWatch, tmp_path: Path) -> None:
    temporary = temporary_beside(tmp_path / "00000000")
    temporary.touch()
    assert not watch.take()
    (tmp_path / "00000000").hardlink_to(temporary)
    assert watch.take()


def test_a_file_made_before_the_watch_has_begun_is_found_by_a_look(tmp_path: Path) -> None:
    watch = ChainWatch(tmp_path / "chain", int)
    assert not watch.announces()
    (tmp_path / "chain").mkdir()
    (tmp_path / "chain" / "00000000").touch()
    assert not watch.announces(), "the caller must look again"
    assert watch.announces()
    watch.close()


def test_nothing_is_announced_of_a_chain_that_is_not_on_this_host() -> None:
    watch = ChainWatch(None, int)
    assert not watch.announces()
    assert not watch.announces()
    watch.close()


def test_nothing_is_announced_where_the_user_has_no_watch_to_spare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(inotify_simple.INotify, "add_watch", refuse)
    watch = ChainWatch(tmp_path, int)
    assert not watch.announces()
    assert not watch.announces()
    watch.close()


def test_a_process_takes_few_of_the_users_watches(tmp_path: Path) -> None:
    watches = [ChainWatch(tmp_path, int) for _ in range(MOST + 1)]
    for watch in watches:
        watch.announces()
    announcing = [watch for watch in watches if watch.announces()]
    waiting = next(watch for watch in watches if watch not in announcing)
    announcing[0].close()
    announcing[0].close()
    waiting.announces()
    assert waiting.announces(), "the place of the closed one is free"
    for watch in watches:
        watch.close()


def test_the_caller_ends_its_use_of_the_descriptor_before_it_is_closed(watch: ChainWatch, begun: list[int]) -> None:
    ended: list[int] = []
    watch.close(ended.append)
    assert ended == begun
