"""The parts of the driver for schedules: the workflow and the activity of a tick."""

from __future__ import annotations

from temporalio.client import Client

from treadle.orchestrator.dispatcher.driver_context.run_context import DriverContext
from treadle.orchestrator.environment.profile import Profile
from treadle.orchestrator.temporal.driver_parts import DriverParts

from .tick_activity import TickDesk
from .tick_workflow import TickWorkflow


def driver_parts(client: Client, site: DriverContext, profile: Profile) -> DriverParts:
    return DriverParts([TickWorkflow], [TickDesk(client, site.store, site.key, profile.allow).begin])
