"""Keys, compared with a second implementation of docs/hashing.md."""

from __future__ import annotations

import decimal
import enum
import json
import struct
import subprocess
import sys
import uuid
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from treadle.primitives.errors import DataError
from treadle.primitives.shuffling import hashing
from treadle.primitives.shuffling.hashing import hash_sequence, stable_hash_array
from treadle.primitives.shuffling.keys import Key, canonical, identity, stable_hash
from treadle.primitives.testing.keys import arrow_arrays, keys, numbers, numpy_arrays

GOLDEN = Path(__file__).with_name("golden_keys.json")

# -- a second implementation, from docs/hashing.md alone -------------------------------------------------------------

M = 1 << 64


def _mix(x: int) -> int:
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % M
    x = (x ^ x >> 27) * 0x94D049BB133111EB % M
    return x ^ x >> 31


def _salt(tag: int) -> int:
    return _mix((0x74726561646C6531 + tag) % M)


def _xxh3(data: bytes, tag: int) -> int:
    return int.from_bytes(xxhash.xxh3_64(data, seed=_salt(tag)).digest(), "big")


def _expected_number(key: int | float) -> int:
    if key != key:
        return _mix(0x7FF8000000000000 ^ _salt(2))
    try:
        n = int(key)
        whole = n == key
    except OverflowError:
        whole = False
    if whole and -(2**63) <= n < 2**64:
        return _mix(n % M ^ _salt(1))
    try:
        double = struct.pack(">d", float(key))
        exact = struct.unpack(">d", double)[0] == key
    except OverflowError:
        exact = False
    if exact:
        return _mix(int.from_bytes(double, "big") ^ _salt(2))
    size = next(size for size in range(1, 10_000) if -(1 << (8 * size - 1)) <= n < 1 << (8 * size - 1))
    return _xxh3(bytes(n >> (8 * i) & 255 for i in range(size)), 3)


def _expected_time(key: date) -> int:
    if not isinstance(key, datetime):
        return _mix((key - date(1970, 1, 1)).days % M ^ _salt(6))
    offset = key.utcoffset()
    clock = key.replace(tzinfo=None) - (offset or timedelta(0)) if key.year > 1 else key.replace(tzinfo=None)
    return _mix((clock - datetime(1970, 1, 1)) // timedelta(microseconds=1) % M ^ _salt(7 if offset is None else 8))


def expected_hash(key: Any) -> int:
    if key is None:
        return _mix(_salt(0))
    if isinstance(key, bool | int | float):
        return _expected_number(key)
    if isinstance(key, date):
        return _expected_time(key)
    if isinstance(key, tuple):
        h = _mix(len(key) ^ _salt(10))
        for element in key:
            h = _mix(h ^ expected_hash(element))
        return h
    if isinstance(key, str):
        return _xxh3(b"".join(_code_point(ord(c)) for c in key), 4)
    return _xxh3(key.bytes, 9) if isinstance(key, uuid.UUID) else _xxh3(key, 5)


def _code_point(c: int) -> bytes:
    if c < 0x80:
        return bytes([c])
    if c < 0x800:
        return bytes([0xC0 | c >> 6, 0x80 | c & 63])
    if c < 0x10000:
        return bytes([0xE0 | c >> 12, 0x80 | c >> 6 & 63, 0x80 | c & 63])
    return bytes([0xF0 | c >> 18, 0x80 | c >> 12 & 63, 0x80 | c >> 6 & 63, 0x80 | c & 63])


INF, NAN = float("inf"), float("nan")
BERLIN = ZoneInfo("Europe/Berlin")
_INTEGERS = [0, 1, -1, 255, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**64 + 1, -(2**63), -(2**63) - 1]
_GOLDEN: list[Any] = [
    *(None, False, True, *_INTEGERS, 2**70, 3**100, -(3**100), 2**1023, 2**1024, 10**400),
    *(0.0, -0.0, 0.5, -0.5, 1.0, 1e16, 1e300, -1e300, 5e-324, INF, -INF, NAN),
    *(
        "",
        "a",
        "abc",
        "treadle",
        "é",
        "日本",
        "\U0001f9f5",
        "\ud800",
        "a\0",
        "x" * 17,
        "x" * 129,
        "x" * 241,
        "x" * 1025,
    ),
    *(b"", b"a", b"\0", b"a\0", bytes(range(256)), uuid.UUID(int=0), uuid.UUID("12345678-1234-5678-1234-567812345678")),
    *(date(1, 1, 1), date(1970, 1, 1), date(2024, 2, 29), date(9999, 12, 31)),
    *(datetime(1, 1, 1), datetime(1970, 1, 1), datetime(2024, 2, 29, 12, 30, 15, 123456)),
    *(datetime(9999, 12, 31, 23, 59, 59, 999999), datetime(1970, 1, 1, tzinfo=UTC)),
    *(datetime(1969, 12, 31, 23, tzinfo=UTC), datetime(2024, 2, 29, tzinfo=timezone(timedelta(hours=5, minutes=45)))),
    *(datetime(2025, 10, 26, 2, tzinfo=BERLIN), datetime(2025, 10, 26, 2, tzinfo=BERLIN, fold=1)),
    *((), (None,), (1,), (1, 2), (2, 1), ((1,), 2), (1, (2,)), ("a", 1.5, b"c", None), ((), ())),
    *((NAN, (NAN, -0.0)), (True, 2**64 + 1, date(2024, 1, 1))),
]
GOLDEN_KEYS = {ascii(key): key for key in _GOLDEN}


def write_golden() -> None:
    """`python tests/primitives/shuffling/test_keys.py` writes the file again. A different file breaks compatibility."""
    vectors = {name: f"{expected_hash(key):016x}" for name, key in GOLDEN_KEYS.items()}
    GOLDEN.write_text(json.dumps(vectors, indent=1) + "\n")


# -- hashing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GOLDEN_KEYS, ids=lambda name: name[:40])
def test_hash_is_the_pinned_golden_value(name: str) -> None:
    assert f"{stable_hash(GOLDEN_KEYS[name]):016x}" == json.loads(GOLDEN.read_text())[name]


def test_every_golden_value_has_a_key() -> None:
    assert list(json.loads(GOLDEN.read_text())) == list(GOLDEN_KEYS)


def test_documented_examples_hold() -> None:
    page = Path(__file__).parents[3].joinpath("docs/hashing.md").read_text()
    for key in ("a", (1, None), 0.5):
        assert f"0x{stable_hash(key):016X}" in page


@given(keys())
def test_hash_equals_its_documented_vectors(key: Key) -> None:
    assert stable_hash(key) == expected_hash(key)


@given(st.lists(keys(), min_size=2, max_size=6))
def test_equal_keys_hash_alike(found: list[Key]) -> None:
    for a in found:
        for b in found:
            if identity(a) == identity(b):
                assert stable_hash(a) == stable_hash(b)
                assert hash(identity(a)) == hash(identity(b))


@given(numbers(), numbers())
def test_equal_numbers_hash_alike_and_unequal_ones_apart(a: Any, b: Any) -> None:
    if (a < 0) == (b < 0):  # n and n - 2**64 share their 64 bits
        assert (stable_hash(a) == stable_hash(b)) == (identity(a) == identity(b))


@given(st.lists(keys(), max_size=6) | st.lists(st.integers()) | st.lists(st.floats()) | st.lists(st.text()))
def test_list_of_keys_hashes_as_each_key_does(found: list[Key]) -> None:
    assert list(hash_sequence(found)) == [stable_hash(key) for key in found]


@given(numpy_arrays())
def test_numpy_array_hashes_as_its_elements_do(array: Any) -> None:
    assert stable_hash_array(array).tolist() == [stable_hash(key) for key in array]


@given(numpy_arrays())
def test_strided_numpy_array_hashes_as_its_elements_do(array: Any) -> None:
    assert stable_hash_array(array[::-2]).tolist() == [stable_hash(key) for key in array[::-2]]


@given(arrow_arrays())
def test_arrow_array_hashes_as_its_elements_do(array: Any) -> None:
    assert stable_hash_array(array).tolist() == [stable_hash(key) for key in array]


@given(arrow_arrays())
def test_arrow_scalar_is_its_python_value(array: Any) -> None:
    for scalar, value in zip(array, array.to_pylist(), strict=True):
        expected = tuple(value.values()) if isinstance(value, dict) else value
        assert identity(scalar) == identity(expected)


def test_hash_does_not_depend_on_the_process() -> None:
    code = "from treadle.primitives.shuffling.keys import stable_hash as h; print(h(('a', b'b', 1.5, None)))"
    seen = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert seen == {b"%d\n" % stable_hash(("a", b"b", 1.5, None))}


def test_targets_of_consecutive_integers_are_even() -> None:
    counts = np.bincount((stable_hash_array(np.arange(64_000)) % np.uint64(64)).astype(int), minlength=64)
    assert counts.min() > 850
    assert counts.max() < 1150


def test_hashing_plain_keys_loads_no_array_library() -> None:
    code = (
        "import sys; from treadle.primitives.shuffling.keys import identity\n"
        "from treadle.primitives.shuffling.partitioning import hash_targets, choose_boundaries\n"
        "from treadle.primitives.shuffling.range_partitioning import range_targets\n"
        "from treadle.primitives.shuffling.key_order import argsort\n"
        "import treadle.primitives.shuffling.folds, treadle.primitives.functions\n"
        "hash_targets(['a', 1], 3); hash_targets([1, 2], 3); range_targets([1, 2], [1]); argsort([2, 'a'])\n"
        "assert not {'numpy', 'pyarrow', 'cloudpickle'} & set(sys.modules), sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# -- identity ----------------------------------------------------------------------------------------------------


@given(keys(), keys())
def test_identity_is_python_equality_but_for_nan_and_instants(a: Any, b: Any) -> None:
    def plain(key: Any) -> bool:
        if isinstance(key, tuple):
            return all(map(plain, key))
        return key == key and not (isinstance(key, datetime) and key.tzinfo is not None)

    if plain(a) and plain(b):
        assert (identity(a) == identity(b)) == (a == b)


@given(keys())
def test_identity_is_reflexive(key: Any) -> None:
    assert identity(key) == identity(canonical(key))
    assert len({identity(key), identity(key)}) == 1


def test_nan_is_itself_at_any_depth_and_nothing_else() -> None:
    assert identity(float("nan")) == identity(np.float32("nan"))
    assert identity((1, (float("nan"),))) == identity((1.0, (float("-nan"),)))
    assert identity(float("nan")) not in [identity(key) for key in ("nan", None, ("nan",), float("inf"))]


def test_large_integer_is_not_the_double_next_to_it() -> None:
    assert identity(2**53 + 1) != identity(float(2**53 + 1))
    assert identity(2**53) == identity(float(2**53))


def test_aware_datetimes_are_one_key_when_they_are_one_instant() -> None:
    first, second = (datetime(2025, 10, 26, 2, 30, tzinfo=BERLIN, fold=fold) for fold in (0, 1))
    assert identity(first) != identity(second)
    assert identity(second) == identity(second.astimezone(UTC))
    assert stable_hash(second) == stable_hash(second.astimezone(UTC))


def test_date_naive_and_aware_midnight_are_three_keys() -> None:
    midnights = [date(2024, 1, 1), datetime(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC)]
    assert len({identity(key) for key in midnights}) == 3
    assert len({stable_hash(key) for key in midnights}) == 3


# -- canonical ---------------------------------------------------------------------------------------------------


class Colour(enum.IntEnum):
    RED = 3


class Point(NamedTuple):
    x: int
    y: object


class Name(enum.StrEnum):
    ANN = "ann"


@pytest.mark.parametrize(
    ("key", "plain"),
    [
        (np.int8(-3), -3),
        (np.uint64(2**63), 2**63),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        (np.bytes_(b"a"), b"a"),
        (np.void(b"a\0"), b"a\0"),
        (np.datetime64("2024-02-29"), date(2024, 2, 29)),
        (np.datetime64("2024-02", "M"), date(2024, 2, 1)),
        (np.datetime64("2024-02-29T01:02:03"), datetime(2024, 2, 29, 1, 2, 3)),
        (np.datetime64("2024-02-29T01:02:03.000001000", "ns"), datetime(2024, 2, 29, 1, 2, 3, 1)),
        (np.datetime64("NaT", "D"), None),
        (np.array([(1, b"x")], dtype="i4,S1")[0], (1, b"x")),
        (pa.scalar(5, pa.int8()), 5),
        (pa.scalar(None, pa.int8()), None),
        (pa.scalar({"a": 1, "b": "x"}), (1, "x")),
        ((np.int8(1), (pa.scalar("x"),)), (1, ("x",))),
        (Colour.RED, 3),
        (Name.ANN, "ann"),
        (Point(1, np.int8(2)), (1, 2)),
    ],
    ids=repr,
)
def test_foreign_scalar_becomes_plain(key: object, plain: Key) -> None:
    found = canonical(key)
    assert found == plain
    assert type(found) is type(plain)
    assert stable_hash(key) == stable_hash(plain)


@pytest.mark.parametrize(
    ("key", "named"),
    [
        ([1], "list"),
        ({1: 2}, "dict"),
        (frozenset(), "frozenset"),
        (1j, "complex"),
        (decimal.Decimal(1), "decimal.Decimal"),
        (timedelta(1), "datetime.timedelta"),
        ((1, [2]), "list"),
        (np.complex128(1), "numpy.complex128"),
        (np.longdouble(1), "numpy.longdouble"),
        (np.timedelta64(1, "s"), "numpy.timedelta64"),
        (np.array([1]), "numpy.ndarray"),
        (np.datetime64(1, "ns"), "numpy.datetime64"),
        (np.datetime64("20000-01-01"), "numpy.datetime64"),
        (np.datetime64("20000-01-01T00:00:00"), "numpy.datetime64"),
        (pa.scalar(decimal.Decimal("1.5")), "decimal.Decimal"),
        (pa.scalar([1]), "list"),
    ],
    ids=repr,
)
def test_invalid_key_is_refused_by_its_type(key: object, named: str) -> None:
    for use in (canonical, identity, stable_hash):
        with pytest.raises(DataError, match=rf"a {named} cannot be a key") as error:
            use(key)
        assert "None, bool, int" in error.value.hint


@pytest.mark.parametrize(
    "array",
    [
        np.array(["2024-01-01T00:00:00.000000001"], dtype="M8[ns]"),
        np.array(["20000-01-01"], dtype="M8[D]"),
        np.array(["20000-01-01T00:00"], dtype="M8[m]"),
        np.array([1 + 2j]),
        np.array([1], dtype=np.longdouble),
        np.array([[1, 2]]),
        np.array([[1], 2], dtype=object),
        pa.array([decimal.Decimal(1)]),
        pa.array([[1]]),
        pa.array([1], pa.timestamp("ns")),
        pa.array([timedelta(1)]),
    ],
    ids=lambda array: str(getattr(array, "dtype", None) or array.type),
)
def test_array_of_invalid_keys_is_refused(array: Any) -> None:
    with pytest.raises(DataError):
        stable_hash_array(array)


# -- hashing of many keys ----------------------------------------------------------------------------------------

_MANY: list[list[Any]] = [
    [*range(-3, 8)],
    [1, 2**63],
    [1, -(2**63) - 1],
    [0.5, 1.5, NAN, INF, -INF, 2.5, 1.0, -0.0, 2.0**63, -(2.0**63), 2.0**64, -(2.0**64), 0.25],
    [1, 1.5, True, None, "a", b"a"],
    ["a", "\ud800", ""],
    [b"", b"a"],
    [(), ()],
    [(1, "a"), (2, "b"), (3, "\ud800")],
    [(1, 0.5), (2, 2**70), (None, NAN)],
    [((1, 2), b"x"), ((3, 4), b"y")],
    [(1,), (1, 2)],
    [(1, "a")],
    [tuple(range(15)), tuple(range(1, 16))],
    [tuple(range(255))],
]


@pytest.mark.parametrize("many", _MANY)
@pytest.mark.parametrize("numpy", [True, False])
def test_many_keys_hash_as_each_does_with_numpy_or_without(
    many: list[Any], numpy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hashing, "_CHUNK", 4)
    if not numpy:
        monkeypatch.setattr(hashing, "_numpy_for", lambda _: None)
    assert list(hash_sequence(many)) == [stable_hash(key) for key in many]


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_whole_numbers_of_an_array_are_not_rounded(dtype: Any) -> None:
    many = [2**53 + 1, int(np.iinfo(dtype).max), int(np.iinfo(dtype).min)]
    assert stable_hash_array(np.array(many, dtype=dtype)).tolist() == [stable_hash(key) for key in many]


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["a", None, "\u00e9"]),
        pa.array(["a", ""], pa.large_string()),
        pa.array([b"a", None, b""]),
        pa.array(["b", "a", None, "b"]).dictionary_encode(),
    ],
    ids=lambda array: str(array.type),
)
def test_texts_and_bytes_of_an_arrow_array_hash_as_themselves(array: Any) -> None:
    assert stable_hash_array(array).tolist() == [stable_hash(key) for key in array.to_pylist()]


@pytest.mark.parametrize("kind", ["i8", "u8", "f8", "f4", "M8[us]", "M8[D]"])
def test_arrays_longer_than_a_chunk_hash_as_their_elements_do(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashing, "_CHUNK", 4)
    for length in (0, 3, 4, 5, 11):
        array = (np.arange(length) * 7).astype(kind)
        if kind.startswith("f"):
            array[: length // 2] += 0.5  # a chunk without whole numbers
        before = array.copy()
        assert stable_hash_array(array).tolist() == [stable_hash(key) for key in array]
        assert array.tobytes() == before.tobytes(), "keys are never written to"


if __name__ == "__main__":
    write_golden()
