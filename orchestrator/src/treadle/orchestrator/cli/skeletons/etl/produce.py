"""Makes the topic `orders` if it is not there, and sends each argument to it: a JSON order such as

python produce.py '{"customer": "ada", "amount": 12.5}'
"""

from __future__ import annotations

import logging
import os
import sys

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

TOPIC = "orders"
BROKER = os.environ.get("KAFKA", "127.0.0.1:9092")
SETTINGS: dict[str, str | int | float | bool] = {"bootstrap.servers": BROKER}


def make_topic() -> None:
    quiet = logging.Logger("kafka", logging.CRITICAL)  # the client says for each try that nobody answers
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
    for order in orders:
        producer.produce(TOPIC, order.encode())
    if producer.flush(30):
        sys.exit("the broker did not take all orders")


if __name__ == "__main__":
    make_topic()
    send(sys.argv[1:])
