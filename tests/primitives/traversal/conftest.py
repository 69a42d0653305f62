from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from primitives.wire.leaks import nothing_left

from treadle.primitives import wire


@pytest.fixture(autouse=True)
def no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """No test leaves a thread, a descriptor or a namespace behind."""
    with nothing_left():
        yield
    mine = f"treadle-{os.getpid()}-"
    assert [name for name in _namespaces() if name.startswith(mine)] == []


def _namespaces() -> list[str]:
    return os.listdir("/run/netns") if os.path.isdir("/run/netns") else []


@pytest.fixture(scope="session")
def identity(tmp_path_factory: pytest.TempPathFactory) -> wire.Identity:
    pytest.importorskip("cryptography", reason="TLS identities are made with the extra `tls`")
    return wire.tls_identity(tmp_path_factory.mktemp("identity"))
