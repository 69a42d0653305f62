"""Fixtures of everything that goes over a wire."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from primitives.wire.leaks import nothing_left

from treadle.primitives import wire


@pytest.fixture(autouse=True)
def no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test with a loop has its own descriptors while it runs, and checks them itself."""
    if inspect.iscoroutinefunction(request.function):
        yield
        return
    with nothing_left():
        yield


@pytest.fixture(scope="session")
def identity(tmp_path_factory: pytest.TempPathFactory) -> wire.Identity:
    pytest.importorskip("cryptography", reason="TLS identities are made with the extra `tls`")
    return wire.tls_identity(tmp_path_factory.mktemp("identity"))


@pytest.fixture(params=["tcp", "tls"])
def tls(request: pytest.FixtureRequest) -> wire.Identity | None:
    """Each test with this fixture runs with and without TLS."""
    if request.param == "tcp":
        return None
    found: wire.Identity = request.getfixturevalue("identity")
    return found


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Starting the next thread with such a name fails."""
    names: list[str] = []
    begin = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name in names:
            names.remove(thread.name)
            raise RuntimeError("can't start new thread")
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    return names.append


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "a" / "b"
