from __future__ import annotations

import hashlib
import os
import ssl
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from primitives.wire.sides import Said, dial, echo, receive, serving

from treadle.primitives import wire
from treadle.primitives.errors import UsageError


def test_an_identity_is_made_once_private_and_read_again(folder: Path) -> None:
    pytest.importorskip("cryptography")
    made = wire.tls_identity(folder)
    assert wire.tls_identity(folder) == made
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert os.listdir(folder) == [made.path.name]


def test_creators_at_the_same_time_get_one_identity(folder: Path) -> None:
    pytest.importorskip("cryptography")
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: wire.tls_identity(folder), range(16)))) == 1


def test_two_folders_have_two_identities(identity: wire.Identity, folder: Path) -> None:
    assert wire.tls_identity(folder).digest != identity.digest


def test_the_digest_is_that_of_the_certificate_a_client_sees(identity: wire.Identity) -> None:
    with serving(echo, identity) as address, dial(address) as connection:
        assert isinstance(connection.sock, ssl.SSLSocket)
        shown = connection.sock.getpeercert(binary_form=True)
        assert shown is not None
        assert hashlib.sha256(shown).digest() == identity.digest
        assert connection.sock.version() == "TLSv1.3"


def test_an_identity_that_is_there_needs_no_package_to_be_used(
    identity: wire.Identity, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert wire.tls_identity(identity.path.parent) == identity
    with pytest.raises(UsageError, match="treadle-primitives\\[tls\\]"):
        wire.tls_identity(folder)
    assert not folder.exists()


def test_message_under_tls_is_not_readable_on_the_way(identity: wire.Identity) -> None:
    """Checks the check: the same look at a plain connection does see the text."""
    from primitives.peers.faults import HEALTHY, FaultyPath

    seen = {}
    for tls in (None, identity):
        with serving(echo, tls) as address, FaultyPath(address, [HEALTHY]) as path:
            with dial(path.address) as connection:
                connection.send_frame(b"\x82\xa4type\xa4said\xa6number\x01", b"secret", deadline=float("inf"))
                assert receive(connection, Said)[1] == b"secret"
            seen[tls] = b"secret" in b"".join(path.passed)
    assert seen == {None: True, identity: False}
