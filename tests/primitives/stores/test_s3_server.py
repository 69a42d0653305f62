"""The S3 server that tests use."""

from __future__ import annotations

import socket

import pytest

from treadle.primitives.stores.store import Store
from treadle.primitives.testing import s3


def test_server_chooses_another_port_when_a_process_takes_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    free_port, chosen = s3._free_port, list[int]()  # private: the test chooses the ports
    with socket.create_server(("127.0.0.1", 0)) as taken:

        def choose() -> int:
            chosen.append(free_port() if chosen else taken.getsockname()[1])
            return chosen[-1]

        monkeypatch.setattr(s3, "_free_port", choose)
        with s3.seaweedfs() as endpoint:
            store = Store.open("s3://treadle", **endpoint.options)
            store.put("a", b"1")
            assert store.get("a") == b"1"
    tries, rest = divmod(len(chosen), len(s3._ROLES))  # private: the number of ports has no other sign
    assert tries in (2, s3._PORT_TRIES)  # a process may take one of the second choice too
    assert rest == 0
