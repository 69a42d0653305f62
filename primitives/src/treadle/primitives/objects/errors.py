"""Errors of shared objects."""

from __future__ import annotations

from ..errors import TreadleError


class ObjectLost(TreadleError):
    """The state of the object is gone: all keepers that held it have ended."""


class ObjectMissing(TreadleError):
    """No object has this name."""


class CallOutcomeUnknown(TreadleError):
    """The session of the caller expired during the call: the call may have taken effect."""


class CallRefused(TreadleError):
    """A limit does not allow the call. It took no effect."""


class CallWaitExpired(TreadleError, TimeoutError):
    """The guard of the call was not true in time. The call took no effect."""


class KeepersUnreachable(TreadleError):
    """No keeper of the object answered in time: the call may have taken effect, or may take effect later."""


class MethodTraceback(Exception):
    """The traceback of an object's method, as text; the cause of the exception that the method raised."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"
