"""User functions of generated workflows. Each accepts any record, and depends only on its arguments.

Each first executes its part of a fault script, if the test wrote one for the run: a JSON file named after the run in
the folder `TEST_FAULTS`, with the steps of each stage, partition and attempt.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import time
import uuid
import zlib
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treadle.executors import Result

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

NAN = float("nan")
KEYS: list[Any] = [
    *("a", None, NAN, 1, True, 1.0, 0, -0.0, "b", b"a", (1, NAN), (None, "x"), 2**70, -(2**65), 0.5, "é", ""),
    *(date(2020, 1, 2), datetime(2020, 1, 2, 3), datetime(2020, 1, 2, tzinfo=UTC), uuid.UUID(int=7), ((1,), 2), ()),
]
"""Keys of every permitted type, some of them equal to each other."""
FAULTS = "TEST_FAULTS"


class PickyError(ValueError):
    """The error of functions that refuse some records."""


class ScriptedError(RuntimeError):
    """The error of a script's faults."""


# -- faults --------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=16)
def _script(run: str) -> Mapping[str, Any]:
    path = Path(os.environ.get(FAULTS, "/nonexistent")) / f"{run}.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def play(context: Any) -> None:
    """Execute the script's step for this stage, partition and attempt."""
    steps = _script(context.run).get(context.stage, {}).get(str(context.partition), {})
    match steps.get(str(context.attempt)):
        case "raise":
            raise ScriptedError(f"attempt {context.attempt} at {context.stage}[{context.partition}]")
        case "exit":
            os._exit(3)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "sleep":
            time.sleep(0.05)


# -- records as simple values --------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """NumPy and Arrow values as Python values, at any depth."""
    if hasattr(value, "to_pylist"):
        value = value.to_pylist()
    elif hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return {name: plain(each) for name, each in value.items()} if isinstance(value, dict) else value


def digest(value: Any) -> int:
    """A number from 0 to 999 that depends only on the value."""
    return zlib.crc32(repr(plain(value)).encode()) % 1000


def _records(partition: Any) -> list[Any]:
    found = plain(partition) if hasattr(partition, "to_pylist") or hasattr(partition, "tolist") else list(partition)
    return list(found)


# -- map, per record -----------------------------------------------------------------------------------------------


def same(record: Any, *, context: Any) -> Any:
    play(context)
    return record


def number(record: Any, *, context: Any) -> int:
    play(context)
    return digest(record)


def word(record: Any, *, context: Any) -> str:
    play(context)
    return f"w{digest(record) % 50}"


def to_pair(record: Any, *, context: Any) -> tuple[Any, int]:
    """A pair with a key of any type."""
    play(context)
    value = digest(record)
    return KEYS[value % len(KEYS)], value


def to_skewed_pair(record: Any, *, context: Any) -> tuple[Any, int]:
    """A pair; nine of ten records have the same key."""
    play(context)
    value = digest(record)
    return (value, value) if value % 10 == 0 else ("hot", value)


def to_list_pair(record: Any, *, context: Any) -> list[Any]:
    """A mutable pair."""
    play(context)
    value = digest(record)
    return [value % 3, [value]]


def to_nothing(record: Any, *, context: Any) -> None:
    play(context)


def to_rows(record: Any, *, context: Any) -> Any:
    """Each record is an array, but never a partition."""
    import numpy

    play(context)
    return numpy.arange(digest(record) % 4)


def placed(record: Any, *, context: Any) -> list[Any]:
    """The position of the record."""
    play(context)
    place = context.record
    return [place.position, place.uri, place.line, place.row]


def several(record: Any, *, context: Any) -> Iterator[int]:
    """None, one or two records."""
    play(context)
    value = digest(record)
    for copy in range(value % 3):
        yield value + copy


def listed(record: Any, *, context: Any) -> Any:
    """Flat only if the stage has `flat`."""
    play(context)
    value = digest(record)
    return [value, str(value)][: value % 3]


def picky(record: Any, *, context: Any) -> int:
    """Refuses some records, always the same ones."""
    play(context)
    value = digest(record)
    if value % 5 == 0:
        raise PickyError(f"{value} cannot be taken")
    return value


def picky_late(record: Any, *, context: Any) -> Iterator[int]:
    """Refuses some records after it has yielded others."""
    play(context)
    value = digest(record)
    yield value
    if value % 4 == 0:
        raise PickyError(f"{value} cannot be finished")


def drawn(record: Any, *, context: Any) -> int:
    """A random number that is the same in every attempt."""
    play(context)
    return digest(record) + int(context.rng.integers(1000))


def measured(record: Any, *, context: Any) -> Result:
    play(context)
    value = digest(record)
    return Result(value, metrics={"seen": 1, "least": value, "most": value})


def with_value(record: Any, *, value: Any, context: Any) -> int:
    play(context)
    return digest([plain(record), plain(value)])


def changing(record: Any, *, value: Any = None, context: Any) -> int:
    """Changes its arguments if they are mutable. The change must stay invisible."""
    play(context)
    for each in (record, value):
        if isinstance(each, list):
            each.append("changed")
        elif isinstance(each, dict):
            each["changed"] = True
    return digest([plain(record), plain(value)])


# -- map, per partition --------------------------------------------------------------------------------------------


def counted(partition: Any, *, context: Any) -> int:
    """One record for each partition, empty ones included."""
    play(context)
    return len(_records(partition))


def gone_through(partition: Any, *, context: Any) -> Iterator[int]:
    play(context)
    for index, record in enumerate(_records(partition)):
        yield digest([index, record])


def to_table(partition: Any, *, context: Any) -> Any:
    """Columns `k` (with nulls) and `v`."""
    import pyarrow

    play(context)
    values = [digest(record) for record in _records(partition)]
    keys = [None if value % 7 == 0 else value % 5 for value in values]
    return pyarrow.table({"k": pyarrow.array(keys, pyarrow.int64()), "v": pyarrow.array(values, pyarrow.int64())})


def to_frame(partition: Any, *, context: Any) -> Any:
    """Columns `k` and `v`, in a library other than Arrow."""
    from frames import Frame

    play(context)
    values = [digest(record) for record in _records(partition)]
    return Frame({"k": [value % 5 for value in values], "v": values})


def to_float_table(partition: Any, *, context: Any) -> Any:
    """Columns `k` (with NaN and nulls) and `v`."""
    import pyarrow

    play(context)
    values = [digest(record) for record in _records(partition)]
    keys = [None if value % 7 == 0 else NAN if value % 7 == 1 else value % 5 / 2 for value in values]
    return pyarrow.table({"k": pyarrow.array(keys, pyarrow.float64()), "v": pyarrow.array(values, pyarrow.int64())})


def to_array(partition: Any, *, context: Any) -> Any:
    """Integers, shape (n, 2)."""
    import numpy

    play(context)
    values = [digest(record) for record in _records(partition)]
    return numpy.array([[value % 5, value] for value in values], dtype=numpy.int64).reshape(-1, 2)


def to_float_array(partition: Any, *, context: Any) -> Any:
    """Floats with NaN, shape (n,)."""
    import numpy

    play(context)
    values = [digest(record) for record in _records(partition)]
    return numpy.array([NAN if value % 6 == 0 else value % 9 / 4 for value in values], dtype=numpy.float64)


def to_scalar_array(partition: Any, *, context: Any) -> Any:
    """An array without dimensions is one record."""
    import numpy

    play(context)
    return numpy.array(len(_records(partition)))


def measured_partition(partition: Any, *, context: Any) -> Result:
    play(context)
    values = [digest(record) for record in _records(partition)]
    return Result(values, metrics={"seen": len(values), "least": min(values, default=0), "most": sum(values)})


def read_whole(text: str, *, context: Any) -> tuple[int, int]:
    play(context)
    return len(text), digest(text)


def picky_partition(partition: Any, *, context: Any) -> int:
    play(context)
    value = digest(_records(partition))
    if value % 4 == 0:
        raise PickyError(f"the partition {value} cannot be taken")
    return value


# -- keys ----------------------------------------------------------------------------------------------------------


def key_of(record: Any) -> Any:
    return KEYS[digest(record) % len(KEYS)]


def small_key_of(record: Any) -> int:
    return digest(record) % 4


def hot_key_of(record: Any) -> str:
    return "hot" if digest(record) % 10 else "cold"


def no_key_of(record: Any) -> Any:
    """Sometimes of a type that keys may not have."""
    return {"a": 1} if digest(record) % 20 == 0 else 1


def keys_of_table(table: pa.Table) -> pa.ChunkedArray:
    return table["k"]


def keys_of_array(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    first: np.ndarray[Any, Any] = array.reshape(len(array), -1)[:, 0] if array.size else array.reshape(-1)[:0]
    return first


# -- reduce --------------------------------------------------------------------------------------------------------


def nest(a: Any, b: Any) -> str:
    """Neither associative nor commutative, so it shows the shape of the tree and the order of all records."""
    return f"({plain(a)} {plain(b)})"


def add(a: Any, b: Any) -> int:
    return (a if isinstance(a, int) else digest(a)) + (b if isinstance(b, int) else digest(b))


def append(a: Any, b: Any) -> Any:
    """Changes its left operand, like accumulators do."""
    left = a if isinstance(a, list) else [plain(a)]
    left.extend(b if isinstance(b, list) else [plain(b)])
    return left


def picky_add(a: Any, b: Any) -> int:
    total = add(a, b)
    if total % 11 == 0:
        raise PickyError(f"{total} is too odd")
    return total


def finished(accumulator: Any, *, context: Any) -> tuple[str, Any]:
    play(context)
    return "finished", plain(accumulator)


def finished_with(accumulator: Any, *, value: Any, context: Any) -> int:
    play(context)
    return digest([plain(accumulator), plain(value)])


def finished_and_measured(accumulator: Any, *, context: Any) -> Result:
    play(context)
    return Result(plain(accumulator), metrics={"size": digest(accumulator)})


def _values(values: Any) -> Any:
    if isinstance(values, Mapping):
        return {name: [plain(each) for each in one] for name, one in values.items()}
    return [plain(each) for each in values]


def of_key(key: Any, values: Any, *, context: Any) -> Any:
    play(context)
    found = _values(values)
    assert repr(context.record.key) == repr(key)
    return [repr(key), {name: digest(one) for name, one in found.items()} if isinstance(found, dict) else found]


def of_key_measured(key: Any, values: Any, *, context: Any) -> Result:
    play(context)
    return Result(digest(_values(values)), metrics={"seen": 1, "least": digest(key), "most": digest(key)})


def of_key_with(key: Any, values: Any, *, value: Any, context: Any) -> int:
    play(context)
    return digest([repr(key), _values(values), plain(value)])


def picky_of_key(key: Any, values: Any, *, context: Any) -> int:
    play(context)
    value = digest(_values(values))
    if value % 6 == 0:
        raise PickyError(f"{value} of {key!r}")
    return value


def first_of_key(key: Any, values: Iterator[Any], *, context: Any) -> Any:
    """Does not read the other values."""
    play(context)
    return plain(next(iter(values), None)) if not isinstance(values, Mapping) else sorted(values)


def of_all(values: Any, *, context: Any) -> list[Any]:
    play(context)
    return [plain(each) for each in values]


def of_all_measured(values: Any, *, context: Any) -> Result:
    play(context)
    found = _values(values)
    return Result(len(found), metrics={"size": digest(found)})


def of_partition_measured(values: Any, *, context: Any) -> Result:
    play(context)
    found = _values(values)
    return Result(len(found), metrics={"seen": len(found), "least": len(found), "most": len(found)})


def of_partitions(values: Any, *, context: Any) -> list[Any]:
    """The visible properties of whole partitions."""
    play(context)
    return [(type(partition).__name__, digest(_records(partition))) for partition in values.partitions()]


def of_all_with(values: Any, *, value: Any, context: Any) -> int:
    play(context)
    return digest([_values(values), plain(value)])


def boundaries(values: Any, *, count: int, context: Any) -> list[int]:
    """`count` ascending keys."""
    play(context)
    seen = sorted({digest(value) % 4 for value in values}) or [0]
    return [seen[index * len(seen) // count] for index in range(count)]
