from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator

import pytest
from eventually import eventually

from treadle.executors.runtime.split_reader import SplitReader
from treadle.primitives.errors import MissingError
from treadle.primitives.formats import FileSplit, ReadOptions, plan_splits, read, split_content
from treadle.primitives.stores.input_files import list_files
from treadle.primitives.stores.store import Store

LINES = b"0123456\n"


def splits(place: str, count: int) -> list[FileSplit]:
    """Splits of 64 lines each."""
    Store.open(place).put("input", LINES * 64 * count)
    [info] = list_files(f"{place}/input")
    return plan_splits(info, ReadOptions("text"), 64 * len(LINES))


@pytest.fixture
def far() -> str:
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Where the pieces begin that were read."""
    found: list[int] = []
    known = split_content.line_content

    def counted(split: FileSplit) -> tuple[int, memoryview]:
        found.append(split.start)
        return known(split)

    for module in (split_content, read):
        monkeypatch.setattr(module, "line_content", counted)
    yield found
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("read ahead")]


def test_of_a_remote_file_one_piece_is_read_ahead(far: str, begun: list[int]) -> None:
    [one] = splits(far, 1)
    _, found = SplitReader(8, whole_text=False).read(one)
    for taken, piece in enumerate(found, 1):
        assert piece == ["0123456"]
        assert len(begun) <= taken + 1
        if taken == 32:
            break
    found.close()  # type: ignore[attr-defined]
    assert len(begun) == 33, "the one that was under way is over"


@pytest.mark.parametrize("whole_text", [False, True])
def test_announced_split_is_read_before_it_is_wanted(far: str, begun: list[int], *, whole_text: bool) -> None:
    one, other = splits(far, 2)
    reader = SplitReader(1 << 20, whole_text=whole_text)
    reader.expect(one)
    reader.expect(other)
    eventually(lambda: sorted(begun) == [0, 512])
    records = [list(reader.read(split)[1]) for split in (one, other)]
    assert records == [[["0123456"] * 64]] * 2 if not whole_text else [[[(LINES * 64).decode()]]] * 2
    assert len(begun) == 2, "nothing is read twice"


def test_split_of_a_local_file_is_read_when_it_is_wanted(tmp_path: object, begun: list[int]) -> None:
    [one] = splits(f"file://{tmp_path}", 1)
    reader = SplitReader(1 << 20, whole_text=False)
    reader.expect(one)
    kind, pieces = reader.read(one)
    assert (kind, begun) == ("objects", [])
    assert len(next(pieces)) == 64


def test_error_of_an_announced_split_is_raised_by_its_pieces(far: str) -> None:
    [one] = splits(far, 1)
    Store.open(far).delete(["input"])
    reader = SplitReader(1 << 20, whole_text=False)
    reader.expect(one)
    _, pieces = reader.read(one)
    with pytest.raises(MissingError, match="input is gone"):
        next(pieces)
