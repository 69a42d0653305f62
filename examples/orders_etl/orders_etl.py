"""Functions of the example: orders to rows of a warehouse."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from treadle.executors import Result

Order = dict[str, Any]


def parse(order: Order) -> Order:
    """The fields of an order that the warehouse needs. Raises ValueError for a record that is not an order."""
    if not isinstance(order.get("customer"), str) or not isinstance(order.get("cents"), int):
        raise ValueError("an order needs a customer and cents")
    return {"order_id": str(order["order_id"]), "customer": order["customer"], "cents": order["cents"]}


def customer(order: Order) -> str:
    name: str = order["customer"]
    return name


def upsert(orders: Iterator[Order], *, warehouse: str) -> Result:
    """Write the orders. An existing order is overwritten, so retries and replays do no harm."""
    rows = list(orders)
    with closing(sqlite3.connect(warehouse, timeout=60)) as database, database:
        database.execute("CREATE TABLE IF NOT EXISTS orders (order_id TEXT PRIMARY KEY, customer TEXT, cents INTEGER)")
        database.executemany(
            "INSERT INTO orders VALUES (:order_id, :customer, :cents) ON CONFLICT (order_id) "
            "DO UPDATE SET customer = excluded.customer, cents = excluded.cents",
            rows,
        )
    return Result(len(rows), metrics={"rows": len(rows)})
