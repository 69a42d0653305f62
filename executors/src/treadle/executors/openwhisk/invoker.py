"""Calls the deployed actions, one for each size. OpenWhisk runs a call at most once; retries are up to the attempt."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from treadle.primitives.errors import StoreError, UsageError

from ..functions.invoker import MEGABYTE, Answer, Limits
from .client import OpenWhiskClient
from .entry import RESERVED_MEMORY
from .responses import Activation, Pending, answer_of, pause, read_record, read_reply

CURRIED = 32 << 10
"""Bytes of a payload reserved for the parameters bound to the action, which count with the call's own."""
SIZES = (256, 512)
"""Megabytes of memory: the default, and the maximum of an unchanged installation (reference.md)."""
SMALLEST = 256
"""Megabytes of an action: below this, `RESERVED_MEMORY` leaves too little for a task."""
SECONDS = 300.0
"""The maximum duration of an action in an unchanged installation (reference.md)."""
_STARTING = 30.0
"""Seconds added to the call's own time for finding and starting a container."""
_QUEUED = 60.0
_LOG_TRIES = 4


class OpenWhiskInvoker:
    """See `Invoker`. A started call cannot be stopped; the reports of an abandoned call go to the store and are
    ignored."""

    def __init__(
        self,
        client: OpenWhiskClient,
        action: str = "treadle",
        sizes: Sequence[int] = SIZES,
        *,
        seconds: float = SECONDS,
    ) -> None:
        """`sizes`: megabytes of the deployed actions; `seconds`: the time limit set at deployment."""
        if not sizes:
            raise UsageError("an OpenWhisk executor needs at least one size", f"Give sizes, such as {list(SIZES)}.")
        if min(sizes) < SMALLEST:
            kept = f"{RESERVED_MEMORY // MEGABYTE} MB are kept for OpenWhisk's proxy and for treadle"
            raise UsageError(
                f"an action of {min(sizes)} MB has no room for tasks: {kept}", f"Give sizes of at least {SMALLEST}."
            )
        self._client = client
        self._actions = {size * MEGABYTE: action_name(action, size) for size in sorted(sizes)}
        self.limits = Limits(
            request=MEGABYTE - CURRIED,
            response=MEGABYTE - CURRIED,
            seconds=seconds,
            memory=tuple(self._actions),
            reserve=RESERVED_MEMORY,
            queued_seconds=_QUEUED,
        )

    async def invoke(self, request: bytes, memory: int, seconds: float) -> Answer:
        """See `Invoker.invoke`. `request` is a JSON object that contains the parameters of the call."""
        action = self._actions[self.limits.size(memory)]
        reply = await self._client.request(
            "POST",
            f"actions/{action}",
            params={"blocking": "true", "result": "false"},
            content=request,
            headers={"content-type": "application/json"},
        )
        found = read_reply(reply.status, reply.body, reply.headers, action)
        if isinstance(found, Pending):
            return answer_of(
                await self._record(found.activation, min(seconds or self.limits.seconds, self.limits.seconds))
            )
        answer = answer_of(found)
        return answer if answer.ended == "answered" or answer.log else await self._with_log(found)

    async def close(self) -> None:
        await self._client.close()

    async def _record(self, activation: str, seconds: float) -> Activation:
        """Wait for the record of a call that outlives the blocking wait. Raises StoreError when it does not appear."""
        begun = time.monotonic()
        while (waited := time.monotonic() - begun) < seconds + _STARTING:
            await asyncio.sleep(pause(waited))
            if (found := await self._look(activation)) is not None:
                return found
        raise StoreError(
            f"activation {activation} has no record after {waited:.0f} s", "See OpenWhisk's own logs.", retryable=True
        )

    async def _with_log(self, record: Activation) -> Answer:
        """Fetch the log of a failed call with a few tries, because logs are collected after a blocking reply is
        sent."""
        for number in range(_LOG_TRIES):
            await asyncio.sleep(pause(number))
            found = await self._look(record.activationId)
            if found is not None and found.logs:
                return answer_of(found)
        return answer_of(record)

    async def _look(self, activation: str) -> Activation | None:
        """The record, or None if it does not exist or cannot be read."""
        try:
            reply = await self._client.request("GET", f"activations/{activation}")
        except StoreError:
            return None
        return read_record(reply.body) if reply.status == 200 else None


def action_name(action: str, size: int) -> str:
    """The name of the action with `size` megabytes."""
    return f"{action}-{size}"
