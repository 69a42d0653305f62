"""Functions of etl.yaml: plain Python, called by the stages that name them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def parse(order: dict[str, Any]) -> dict[str, Any]:
    """Return a checked order; an error here sets the record aside."""
    return {"customer": str(order["customer"]), "amount": float(order["amount"])}


def customer(order: dict[str, Any]) -> str:
    return str(order["customer"])


def total(_: str, values: Iterable[dict[str, Any]]) -> float:
    """The sum of a customer's orders."""
    amounts: list[float] = [order["amount"] for order in values]
    return round(sum(amounts), 2)
