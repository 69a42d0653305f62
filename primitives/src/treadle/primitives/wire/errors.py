"""What goes wrong between two processes: nobody there, too late, not what was agreed, or not one of us."""

from __future__ import annotations

from ..errors import TreadleError


class WireError(TreadleError):
    """A connection cannot be made or was lost, or what came over it is no message; `__cause__` is the foreign error.

    The connection is of no more use; another one, or another location, may be.
    """

    retryable = True


class TimedOut(WireError):
    """The other side is connected, or was dialled, and its answer did not come before the deadline."""


class Closed(WireError):
    """The other side, or this one, closed the connection between two messages."""


class NotAuthentic(TreadleError):
    """The other side does not hold the run's key, is not whom it claims to be, or does not know the run."""

    retryable = False
