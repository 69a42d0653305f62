"""The package as it is deployed, for the machine the tests run on: built once in a test process, used by all of it."""

from __future__ import annotations

from functools import cache

from treadle.executors.package.build import Package, build_package
from treadle.executors.package.target import this_machine


@cache
def local_package() -> Package:
    """Libraries and treadle, without Arrow; no entry of a provider."""
    return build_package(this_machine())
