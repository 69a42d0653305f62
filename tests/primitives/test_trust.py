from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.primitives.errors import CorruptError, UsageError
from treadle.primitives.sealing import hkdf, load_or_create_key, run_key, seal, unseal

KEY = bytes(range(32))
names = st.text(max_size=20)


@pytest.mark.parametrize(
    ("secret", "salt", "info", "length", "expected"),
    [
        pytest.param(
            "0b" * 22,
            "000102030405060708090a0b0c",
            "f0f1f2f3f4f5f6f7f8f9",
            42,
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865",
            id="A.1",
        ),
        pytest.param(
            "".join(f"{byte:02x}" for byte in range(0x50)),
            "".join(f"{byte:02x}" for byte in range(0x60, 0xB0)),
            "".join(f"{byte:02x}" for byte in range(0xB0, 0x100)),
            82,
            "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e09"
            "da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87",
            id="A.2",
        ),
        pytest.param(
            "0b" * 22,
            "",
            "",
            42,
            "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8",
            id="A.3",
        ),
    ],
)
def test_hkdf_gives_the_vectors_of_rfc_5869(secret: str, salt: str, info: str, length: int, expected: str) -> None:
    derived = hkdf(bytes.fromhex(secret), salt=bytes.fromhex(salt), info=bytes.fromhex(info), length=length)
    assert derived.hex() == expected


def test_runs_have_different_keys_and_none_is_the_deployments() -> None:
    keys = {run_key(KEY, "r1"), run_key(KEY, "r2"), run_key(bytes(32), "r1"), KEY}
    assert len(keys) == 4
    assert {len(key) for key in keys} == {32}
    assert run_key(KEY, "r1") == run_key(KEY, "r1")


def test_a_key_is_made_once_private_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "home" / "key"
    key = load_or_create_key(path)
    assert len(key) == 32
    assert load_or_create_key(path) == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert os.listdir(path.parent) == ["key"]


def test_creators_at_the_same_time_get_one_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(lambda _: load_or_create_key(tmp_path / "key"), range(32)))
    assert len(keys) == 1


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o666])
def test_a_key_others_may_read_or_write_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key"
    load_or_create_key(path)
    path.chmod(mode)
    with pytest.raises(UsageError, match=f"{mode:04o}"):
        load_or_create_key(path)


@pytest.mark.parametrize("size", [0, 31, 33])
def test_file_without_a_key_is_refused_and_kept(tmp_path: Path, size: int) -> None:
    path = tmp_path / "key"
    path.write_bytes(bytes(size))
    path.chmod(0o600)
    with pytest.raises(UsageError, match="32 bytes"):
        load_or_create_key(path)
    assert path.read_bytes() == bytes(size)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_key_of_another_user_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    load_or_create_key(path)
    os.chown(path, 12345, -1)
    with pytest.raises(UsageError, match="12345"):
        load_or_create_key(path)


@given(names, st.binary())
def test_sealed_object_is_unsealed(name: str, payload: bytes) -> None:
    opened = unseal(KEY, name, seal(KEY, name, payload))
    assert opened == payload
    assert opened.readonly


@given(st.data(), names, st.binary(max_size=50))
def test_any_changed_byte_is_refused(data: st.DataObject, name: str, payload: bytes) -> None:
    sealed = bytearray(seal(KEY, name, payload))
    position = data.draw(st.integers(0, len(sealed) - 1))
    sealed[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptError):
        unseal(KEY, name, sealed)


@given(st.data(), st.binary(max_size=50))
def test_any_truncation_or_extension_is_refused(data: st.DataObject, payload: bytes) -> None:
    sealed = seal(KEY, "a", payload)
    with pytest.raises(CorruptError):
        unseal(KEY, "a", sealed[: data.draw(st.integers(0, len(sealed) - 1))])
    with pytest.raises(CorruptError):
        unseal(KEY, "a", sealed + data.draw(st.binary(min_size=1)))


@given(names, names, st.binary())
def test_an_object_is_refused_under_another_name(name: str, other: str, payload: bytes) -> None:
    if name != other:
        with pytest.raises(CorruptError, match="not written with this deployment's key"):
            unseal(KEY, other, seal(KEY, name, payload))


@given(st.text(min_size=1, max_size=9), st.binary(max_size=9))
def test_no_byte_moves_between_name_and_payload(name: str, payload: bytes) -> None:
    sealed = seal(KEY, name, payload)
    moved = sealed[:40] + name[-1].encode() + payload
    with pytest.raises(CorruptError):
        unseal(KEY, name[:-1], moved)


def test_another_key_is_refused_and_says_what_to_do() -> None:
    with pytest.raises(CorruptError, match="deployment's key") as caught:
        unseal(bytes(32), "spec", seal(KEY, "spec", b"{}"))
    assert "deployment key of the host that started the run" in caught.value.hint
