"""Errors between two processes: unreachable, timed out, closed, or not authentic."""

from __future__ import annotations

from ..errors import TreadleError


class WireError(TreadleError):
    """A connection failed or was lost, or received bytes are not a message; `__cause__` is the foreign error.

    The connection is unusable; another connection or location may work.
    """

    retryable = True


class TimedOut(WireError):
    """The other side is connected, or was dialled, and did not answer before the deadline."""


class ConnectionClosed(WireError):
    """Either side closed the connection between two messages."""


class NotAuthentic(TreadleError):
    """The other side does not hold the run's key, has another identity than it claims, or does not know the run."""

    retryable = False
