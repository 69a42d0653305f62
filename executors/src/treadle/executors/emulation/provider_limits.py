"""What a provider of functions allows and does to a call, as data. The figures are those of its invoker."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from ..aws import invoker as aws
from ..functions.invoker import MEGABYTE, Limits
from ..openwhisk import invoker as openwhisk
from ..openwhisk.entry import RESERVED_MEMORY


class Emulation(Struct, frozen=True):
    """A provider in small."""

    limits: Limits
    repeated: int = 10
    """Each so-many-th call is delivered twice, and both copies run at once; 0: none is."""
    warm_calls: int = 20
    """Calls that a sandbox lives for; the next one starts cold, in an empty temporary folder."""


EMULATIONS: Mapping[str, Emulation] = {
    # Asynchronous events "might be delivered multiple times" (Lambda developer guide, asynchronous invocation); a
    # network that repeats a request does the same to synchronous ones.
    "lambda": Emulation(
        Limits(
            request=aws.REQUEST,
            response=aws.RESPONSE,
            seconds=aws.SECONDS,
            memory=tuple(size * MEGABYTE for size in (1024, 2048, 4096)),
            temporary=aws.TEMPORARY * MEGABYTE,
            repeats=True,
        ),
    ),
    "openwhisk": Emulation(
        Limits(
            request=MEGABYTE - openwhisk.CURRIED,
            response=MEGABYTE - openwhisk.CURRIED,
            seconds=openwhisk.SECONDS,
            memory=tuple(size * MEGABYTE for size in openwhisk.SIZES),
            reserve=RESERVED_MEMORY,
            temporary=512 * MEGABYTE,  # containers have no bound of their own; a small disk is one
            repeats=True,
        ),
    ),
}
