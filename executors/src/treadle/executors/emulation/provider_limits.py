"""The limits and behaviour of each function provider, as data. The figures come from the provider's invoker."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from ..aws import invoker as aws
from ..functions.invoker import MEGABYTE, Limits
from ..openwhisk import invoker as openwhisk
from ..openwhisk.entry import RESERVED_MEMORY


class Emulation(Struct, frozen=True):
    """An emulated provider."""

    limits: Limits
    repeated: int = 10
    """Every n-th call is delivered twice, and both copies run at once; 0: never."""
    warm_calls: int = 20
    """Number of calls in the life of a sandbox. The next call starts cold, in an empty temporary folder."""


EMULATIONS: Mapping[str, Emulation] = {
    # Asynchronous events "might be delivered multiple times" (Lambda developer guide, asynchronous invocation). A
    # network that repeats a request does the same to synchronous calls.
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
            temporary=512 * MEGABYTE,  # containers have no limit of their own; the value models a small disk
            repeats=True,
        ),
    ),
}
