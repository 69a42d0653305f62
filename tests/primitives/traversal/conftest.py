from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from primitives.wire.fixtures import refusing
from primitives.wire.leaks import nothing_left

from treadle.primitives import wire

__all__ = ["refusing"]


@pytest.fixture(autouse=True)
def no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """No test leaves a thread, a descriptor or a namespace behind."""
    before = _namespaces()
    with nothing_left():
        yield
    assert _namespaces() == before


def _namespaces() -> set[str]:
    """The namespaces of this process. A module's fixture keeps its own."""
    names = os.listdir("/run/netns") if os.path.isdir("/run/netns") else []
    return {name for name in names if name.startswith(f"treadle-{os.getpid()}-")}


@pytest.fixture(scope="session")
def identity(tmp_path_factory: pytest.TempPathFactory) -> wire.Identity:
    pytest.importorskip("cryptography", reason="TLS identities are made with the extra `tls`")
    return wire.tls_identity(tmp_path_factory.mktemp("identity"))
