"""The deployed package for the tests' machine, built once in a test process and shared."""

from __future__ import annotations

from functools import cache

from treadle.executors.package.build import Package, build_package
from treadle.executors.package.target import this_machine


@cache
def local_package() -> Package:
    """Libraries and treadle, without Arrow and without a provider's entry."""
    return build_package(this_machine())
