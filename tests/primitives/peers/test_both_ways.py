"""The two threads of a path that both sides use."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from treadle.primitives.peers.duplex import BothWays
from treadle.primitives.wire import Connection, ConnectionClosed


class Broken:
    """A connection whose other side is gone."""

    def receive_head(self, *_: object, **__: object) -> Any:
        raise ConnectionClosed("there ended the connection", "")

    def abort(self) -> None:
        pass

    def close(self) -> None:
        pass


def test_a_path_that_breaks_before_all_of_it_has_begun_ends_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread has ended its work before the next one starts."""
    begin = threading.Thread.start

    def at_once(thread: threading.Thread) -> None:
        begin(thread)
        thread.join(0.2)

    ended: list[BothWays] = []
    path = BothWays(
        cast("Connection", Broken()),
        answer=lambda ask: pytest.fail(f"nobody asked, but {ask}"),
        heard=lambda answer, _: pytest.fail(f"nobody answered, but {answer}"),
        moved=lambda: None,
        ended=ended.append,
    )
    monkeypatch.setattr(threading.Thread, "start", at_once)
    path.start()
    path.join()
    assert ended == [path]
