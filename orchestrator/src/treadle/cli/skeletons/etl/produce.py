"""Create the topic `orders` if it is missing, send each argument to it, and print the run that each order starts.

python produce.py '{"customer": "ada", "amount": 12.5}'
"""

from __future__ import annotations

import logging
import os
import sys

from confluent_kafka import KafkaException, Message, Producer, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

TOPIC, TRIGGER = "orders", "etl.live"
BROKER = os.environ.get("KAFKA", "127.0.0.1:9092")
SETTINGS: dict[str, str | int | float | bool] = {"bootstrap.servers": BROKER}


def make_topic() -> None:
    quiet = logging.Logger("kafka", logging.CRITICAL)  # the client logs every failed connection
    admin = AdminClient(SETTINGS, logger=quiet)
    try:
        admin.list_topics(timeout=5)
    except KafkaException:
        sys.exit(f"no broker answers at {BROKER}. Start one there, or name another: KAFKA=HOST:PORT")
    try:
        admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(timeout=30)
    except KafkaException as error:
        if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
            raise


def send(orders: list[str]) -> None:
    producer = Producer(SETTINGS)
    places: list[str] = []
    for order in orders:
        producer.produce(TOPIC, order.encode(), on_delivery=lambda _, sent: places.append(place(sent)))
    if producer.flush(30) or not all(places):
        sys.exit("the broker did not take all orders")
    for one in places:
        sys.stdout.write(f"{TRIGGER}.{topic_id()}.{one}\n")


def place(sent: Message) -> str:
    """`<partition>.<offset>`; empty for an order that was not accepted."""
    return "" if sent.error() else f"{sent.partition()}.{sent.offset()}"


def topic_id() -> str:
    """The topic's UUID, in the form of run ids."""
    admin = AdminClient(SETTINGS)
    found = admin.describe_topics(TopicCollection([TOPIC]))[TOPIC].result(timeout=30)
    return str(found.topic_id).replace("+", "-").replace("/", "_").rstrip("=")


if __name__ == "__main__":
    make_topic()
    send(sys.argv[1:])
