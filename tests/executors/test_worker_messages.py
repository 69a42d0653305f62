"""Frames leave the buffer as they entered it, however the stream was cut."""

from __future__ import annotations

import fcntl
import itertools
import os
import resource
import socket

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from treadle.executors.worker.main import Channel
from treadle.executors.worker.messages import HEADER, FrameBuffer, FrameEncoder


@given(st.lists(st.binary(max_size=300)), st.lists(st.integers(0, 5000)))
def test_frames_survive_any_cutting_of_the_stream(messages: list[bytes], cuts: list[int]) -> None:
    encoder = FrameEncoder()
    stream = b"".join(bytes(encoder.encode(message)) for message in messages)
    assert bytes(encoder.encode(*messages)) == stream or not messages
    bounds = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    buffer = FrameBuffer()
    pieces = [stream[start:stop] for start, stop in itertools.pairwise(bounds)]
    bodies = [body for piece in pieces for body in buffer.feed(piece)]
    assert [msgspec.msgpack.decode(body) for body in bodies] == messages


def test_a_frame_larger_than_the_buffer_is_whole() -> None:
    frame = FrameEncoder().encode(b"x" * 1_000_000)
    assert int.from_bytes(frame[:HEADER], "big") == len(frame) - HEADER
    (body,) = FrameBuffer().feed(bytes(frame))
    assert msgspec.msgpack.decode(body) == b"x" * 1_000_000


def test_half_a_header_gives_no_frame() -> None:
    buffer = FrameBuffer()
    assert buffer.feed(b"\0\0") == []
    assert buffer.feed(b"\0\1\xc0") == [b"\xc0"]


def test_a_channel_hears_on_any_descriptor() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        descriptor = fcntl.fcntl(ours, fcntl.F_DUPFD_CLOEXEC, 1500)
        try:
            channel = Channel(descriptor)
            assert channel.is_silent(0.01)
            theirs.send(b"x")
            assert not channel.is_silent(60)
        finally:
            os.close(descriptor)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
