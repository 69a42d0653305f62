"""User functions that allocate as many bytes as their record states, each with its library."""

from __future__ import annotations


def with_python(size: int) -> int:
    return len(bytearray(size))


def with_numpy(size: int) -> int:
    import numpy

    return numpy.ones(size, "u1").nbytes


def with_arrow(size: int) -> int:
    import pyarrow

    return int(pyarrow.allocate_buffer(size).size)
