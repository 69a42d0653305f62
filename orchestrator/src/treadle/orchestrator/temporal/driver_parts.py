"""Workflows and activities that other packages add to the driver, found by their entry points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Any, NamedTuple

from temporalio.client import Client

from ..dispatcher.driver_context.run_context import DriverContext
from ..environment.profile import Profile

ENTRY_POINTS = "treadle.driver"
"""Group of entry points (https://packaging.python.org/specifications/entry-points).

Each is a function of the driver's client, its context and its profile that returns `DriverParts`.
"""


class DriverParts(NamedTuple):
    """The workflows and activities that a package adds to the driver's task queue."""

    workflows: Sequence[type] = ()
    activities: Sequence[Callable[..., Any]] = ()


def driver_parts(client: Client, site: DriverContext, profile: Profile) -> DriverParts:
    """The parts of all installed packages together."""
    parts: list[DriverParts] = [point.load()(client, site, profile) for point in entry_points(group=ENTRY_POINTS)]
    return DriverParts(
        [workflow for part in parts for workflow in part.workflows],
        [activity for part in parts for activity in part.activities],
    )
