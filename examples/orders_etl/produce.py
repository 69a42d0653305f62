"""Write orders as CloudEvents (binary mode) to a topic: python produce.py [BROKER] [--orders 1000]."""

from __future__ import annotations

import argparse
import json
import random
import uuid

from confluent_kafka import Producer

ORDER = "com.example.order.created.v1"
OTHER = "com.example.order.shipped.v1"


def send(broker: str, topic: str, orders: int, others: int = 0, bad: int = 0, seed: int = 1) -> dict[str, int]:
    """Returns order_id -> cents. Records of other types are skipped; bad ones become dead letters."""
    chance = random.Random(seed)
    producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True})
    sent: dict[str, int] = {}
    kinds = ["order"] * orders + ["other"] * others + ["bad"] * bad
    chance.shuffle(kinds)
    for kind in kinds:
        order = {
            "order_id": str(uuid.UUID(int=chance.getrandbits(128))),
            "customer": f"customer-{chance.randrange(20)}",
        }
        order["cents"] = chance.randrange(1, 100_00)
        if kind == "order":
            sent[order["order_id"]] = order["cents"]
        body = json.dumps(order) if kind != "bad" else "no JSON"
        about = {
            "specversion": "1.0",
            "id": order["order_id"],
            "source": "/shop",
            "type": OTHER if kind == "other" else ORDER,
        }
        headers = {"content-type": "application/json"} | {f"ce_{name}": text for name, text in about.items()}
        producer.produce(topic, body.encode(), key=order["customer"].encode(), headers=headers)
        producer.poll(0)
    producer.flush()
    return sent


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("broker", nargs="?", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="orders.v1")
    parser.add_argument("--orders", type=int, default=1000)
    parser.add_argument("--others", type=int, default=100, help="events of another type")
    parser.add_argument("--bad", type=int, default=3, help="records that are no events")
    arguments = parser.parse_args()
    sent = send(arguments.broker, arguments.topic, arguments.orders, arguments.others, arguments.bad)
    print(f"{len(sent)} orders over {sum(sent.values())} cents sent to {arguments.topic}")
