"""The tail of a log in reports."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.executors.redaction import Redactor
from treadle.executors.worker.log import TAIL, open_log, publish, read_tail


@pytest.fixture
def log() -> Iterator[int]:
    fd = open_log()
    yield fd
    os.close(fd)


def test_log_has_no_name(log: int) -> None:
    assert os.fstat(log).st_nlink == 0


def test_short_log_is_read_whole(log: int) -> None:
    os.write(log, b"one\n")
    os.write(log, b"two\n")
    assert read_tail(log) == b"one\ntwo\n"


def test_writers_append_after_a_cut(log: int) -> None:
    os.write(log, b"before")
    os.ftruncate(log, 0)
    os.write(log, b"after")
    assert read_tail(log) == b"after"


@settings(deadline=None)
@given(before=st.integers(0, 3 * TAIL), after=st.integers(0, 2 * TAIL))
@pytest.mark.parametrize("secret", ["correct horse battery staple", "0123456789" * 2000])
def test_no_piece_of_a_secret_shows_where_the_log_was_cut(secret: str, before: int, after: int) -> None:
    fd = open_log()
    try:
        os.write(fd, b"a" * before + secret.encode() + b"b" * after)
        shown = publish(read_tail(fd), Redactor({"token": secret}))
    finally:
        os.close(fd)
    assert len(shown) <= TAIL
    assert set(shown) <= set(b"ab***token***")
