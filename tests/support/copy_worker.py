"""Reads a topic, writes each record to another, and commits what it has read with what it has written: in transactions.

    python -m tests.support.copy_worker BOOTSTRAP SOURCE TARGET GROUP

It is made to be killed. An error of a transaction ends it; whoever runs it starts it again.
"""

import os
import sys

import confluent_kafka as confluent

TIMEOUT_SECONDS = 5.0
RECORDS = 20
"""In one transaction, at most."""


def copy(bootstrap: str, source: str, target: str, group: str) -> None:
    producer = confluent.Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": f"{group}-copy",
            "transaction.timeout.ms": 20_000,
            "log_level": 0,
            "linger.ms": 0,
        }
    )
    consumer = confluent.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.instance.id": "copy",  # it comes back in the place that it had
            "session.timeout.ms": 10_000,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    producer.init_transactions(TIMEOUT_SECONDS)
    consumer.subscribe([source])
    while True:
        messages = [each for each in consumer.consume(RECORDS, 0.2) if each.error() is None]
        if messages:
            copy_in_transaction(producer, consumer, messages, target)


def copy_in_transaction(
    producer: confluent.Producer, consumer: confluent.Consumer, messages: list[confluent.Message], target: str
) -> None:
    producer.begin_transaction()
    for message in messages:
        producer.produce(target, message.value(), b"%d" % (message.offset() or 0), message.partition() or 0)
    producer.send_offsets_to_transaction(
        consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), TIMEOUT_SECONDS
    )
    producer.commit_transaction(TIMEOUT_SECONDS)


if __name__ == "__main__":
    try:
        copy(*sys.argv[1:])
    except confluent.KafkaException:
        os._exit(1)
