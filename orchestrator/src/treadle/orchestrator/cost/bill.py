"""Usage with its price, by node of the plan. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from .prices import Prices, Rates, StoreRates
from .usage import GIGABYTE, Usage, total


class BillLine(Struct, frozen=True, rename="camel"):
    """The usage and cost of one node."""

    node: str
    executor: str
    """The name that stages use. Empty: the driver itself."""
    kind: str
    """The key of the executor's prices: its kind, followed by `/` and the machine where the machine has its own
    price."""
    usage: Usage
    partitions: int = 0
    waves: int = 0
    """How often all slots are filled. In estimates only."""
    elapsed: float = 0.0
    """Seconds from the node's first task to its last. In estimates only."""
    memory: int = 0
    """Bytes of memory given to an attempt. In estimates only."""
    late: bool = False
    """True: a task of the node would take longer than its executor allows."""
    measured: bool = False
    """True: the GB-seconds are the provider's own figures, already rounded."""
    cost: float = 0.0


class Bill(Struct, frozen=True, rename="camel"):
    lines: tuple[BillLine, ...]
    usage: Usage
    cost: float
    currency: str
    prices: str
    """Date and source of the prices."""
    unknown: tuple[str, ...] = ()
    """Usage that the bill lacks because nothing measured it."""


def bill(lines: Sequence[BillLine], prices: Prices, store: str, unknown: Sequence[str] = ()) -> Bill:
    """The lines with their cost, and the sum.

    `store`: the URL of the store. `unknown`: the usage that the lines lack.
    """
    rates = prices.stores.get(store.partition("://")[0], StoreRates())
    priced = tuple(_priced(line, prices, rates) for line in lines)
    source = f"{prices.date}, {prices.source}"
    cost = math.fsum(line.cost for line in priced)
    return Bill(priced, total(line.usage for line in priced), cost, prices.currency, source, tuple(unknown))


def _priced(line: BillLine, prices: Prices, store: StoreRates) -> BillLine:
    plain = prices.executors.get(line.kind.partition("/")[0], Rates())
    rates = prices.executors.get(line.kind, plain)
    usage = line.usage
    cost = [
        (usage.calls or usage.attempts) * rates.call,
        (usage.gigabyte_seconds if line.measured else _billed(usage, rates)) * rates.gigabyte_second,
        usage.temporary * rates.temporary_gigabyte_second,
        usage.cpu_seconds * rates.cpu_second,
        (usage.puts + usage.lists) * store.put,
        usage.gets * store.get,
        (usage.moved.get("store", 0) + usage.moved.get("stored", 0)) / GIGABYTE * store.gigabyte,
        usage.actions * prices.action,
    ]
    return replace(line, cost=math.fsum(cost))


def _billed(usage: Usage, rates: Rates) -> float:
    """GB-seconds with each attempt rounded up, which adds half a rounding step on average."""
    if not usage.seconds:
        return usage.gigabyte_seconds
    return usage.gigabyte_seconds * (1 + usage.attempts * rates.second_rounding / 2 / usage.seconds)
