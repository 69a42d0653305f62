"""Write orders, some of them broken: python generate.py FOLDER [--files 3] [--orders 1000]."""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path


def write_orders(folder: Path, files: int, orders: int, seed: int = 1) -> tuple[dict[str, int], int]:
    """(cents by customer, broken lines); one line in fifty is broken."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(seed)
    totals: dict[str, int] = {}
    broken = 0
    for index in range(files):
        lines = []
        for _ in range(orders):
            name, cents = f"customer-{chance.randrange(20):02d}", chance.randrange(1, 100_00)
            if chance.random() < 0.02:
                broken += 1
                lines.append(chance.choice(['{"customer": ', '{"customer": "x"}', "not an order"]))
            else:
                totals[name] = totals.get(name, 0) + cents
                lines.append(json.dumps({"customer": name, "cents": cents}))
        (folder / f"orders-{index}.txt").write_text("\n".join(lines) + "\n")
    return totals, broken


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--files", type=int, default=3)
    parser.add_argument("--orders", type=int, default=1000, help="in each file")
    arguments = parser.parse_args()
    totals, broken = write_orders(arguments.folder, arguments.files, arguments.orders)
    print(f"{sum(totals.values())} cents of {len(totals)} customers, {broken} broken lines in {arguments.folder}")
