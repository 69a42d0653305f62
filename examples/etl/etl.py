"""Functions of the ETL example."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from treadle.executors import Result

Order = dict[str, Any]


def parse(line: str) -> Result:
    """The order in a line. Raises ValueError for a line that is not an order."""
    order = json.loads(line)
    if not isinstance(order.get("customer"), str) or not isinstance(order.get("cents"), int):
        raise ValueError("an order needs a customer and cents")
    return Result(order, metrics={"orders": 1})


def customer(order: Order) -> str:
    name: str = order["customer"]
    return name


def total(_: str, orders: Iterator[Order]) -> int:
    return sum(order["cents"] for order in orders)


def audit(totals: Iterator[tuple[str, int]]) -> Result:
    cents = sum(amount for _, amount in totals)
    return Result(cents, metrics={"cents": cents})
