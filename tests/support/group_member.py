"""A member of a consumer group in a process of its own, with the client of another project.

    python -m tests.support.group_member CLIENT BOOTSTRAP GROUP TOPIC {"strategy": ..., "instance": ..., "commit": ...}

It says on its standard output, a line of JSON each, what it is assigned and what it has received. It leaves the group
when its standard input ends. Killed or stopped by a signal, it is what a crashed or a hanging member is.
"""

import asyncio
import json
import select
import sys
import threading
from typing import Any

SESSION_MS = 6_000
POLL_SECONDS = 0.1


def say(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


class Reporter:
    """Says what is assigned whenever it is something else."""

    def __init__(self) -> None:
        self._assigned: list[tuple[str, int]] | None = None

    def assigned(self, partitions: Any) -> None:
        now = sorted((tp.topic, tp.partition) for tp in partitions)
        if now != self._assigned:
            self._assigned = now
            say(assigned=now)


def is_over() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


def run_confluent(bootstrap: str, group: str, topic: str, options: dict[str, Any]) -> None:
    import confluent_kafka

    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": 500,
        "topic.metadata.refresh.interval.ms": 500,
        "enable.auto.commit": options["commit"] == "auto",
        "auto.commit.interval.ms": 200,
        "log_level": 0,
    }
    if options["strategy"]:
        settings["partition.assignment.strategy"] = {"cooperative": "cooperative-sticky"}.get(
            options["strategy"], options["strategy"]
        )
    if options["instance"]:
        settings["group.instance.id"] = options["instance"]
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe([topic])
    reporter = Reporter()
    while not is_over():
        messages = [message for message in consumer.consume(500, POLL_SECONDS) if message.error() is None]
        reporter.assigned(consumer.assignment())
        if messages:
            say(records=[(message.partition(), message.offset()) for message in messages])
            if options["commit"] == "hand":
                try:
                    consumer.commit(asynchronous=False)
                except confluent_kafka.KafkaException as error:
                    say(commit=error.args[0].name())
    consumer.close()


def run_kafka_python(bootstrap: str, group: str, topic: str, options: dict[str, Any]) -> None:
    import warnings

    warnings.simplefilter("ignore")
    import kafka
    import kafka.errors
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

    strategies = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
        "cooperative": CooperativeStickyAssignor,
    }
    settings: dict[str, Any] = {"group_instance_id": options["instance"]} if options["instance"] else {}
    if options["strategy"]:
        settings["partition_assignment_strategy"] = [strategies[options["strategy"]]]
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=500,
        metadata_max_age_ms=500,
        enable_auto_commit=options["commit"] == "auto",
        auto_commit_interval_ms=200,
        **settings,
    )
    reporter = Reporter()
    while not is_over():
        messages = [message for found in consumer.poll(POLL_SECONDS * 1000).values() for message in found]
        reporter.assigned(consumer.assignment())
        if messages:
            say(records=[(message.partition, message.offset) for message in messages])
            if options["commit"] == "hand":
                try:
                    consumer.commit()
                except kafka.errors.KafkaError as error:
                    say(commit=type(error).__name__)
    consumer.close()


def run_aiokafka(bootstrap: str, group: str, topic: str, options: dict[str, Any]) -> None:
    import aiokafka
    import aiokafka.errors
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

    strategies = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
    }

    async def main() -> None:
        settings: dict[str, Any] = {}
        if options["strategy"]:
            settings["partition_assignment_strategy"] = (strategies[options["strategy"]],)
        consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            group_instance_id=options["instance"],
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=500,
            metadata_max_age_ms=500,
            enable_auto_commit=options["commit"] == "auto",
            auto_commit_interval_ms=200,
            **settings,
        )
        await consumer.start()
        reporter = Reporter()
        while not is_over():
            found = await consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000))
            messages = [message for batch in found.values() for message in batch]
            reporter.assigned(consumer.assignment())
            if messages:
                say(records=[(message.partition, message.offset) for message in messages])
                if options["commit"] == "hand":
                    try:
                        await consumer.commit()
                    except aiokafka.errors.KafkaError as error:
                        say(commit=type(error).__name__)
        await consumer.stop()

    asyncio.run(main())


def run_headrace(bootstrap: str, group: str, topic: str, options: dict[str, Any]) -> None:
    import headrace
    import headrace.common.errors

    strategy = {"cooperative": "cooperative-sticky"}.get(options["strategy"], options["strategy"])
    consumer = headrace.Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        group_instance_id=options["instance"],
        partition_assignment_strategy=strategy,
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=500,
        metadata_max_age_ms=500,
        enable_auto_commit=options["commit"] == "auto",
        auto_commit_interval_ms=200,
    )
    reporter = Reporter()
    while not is_over():
        records = [record for found in consumer.poll(POLL_SECONDS * 1000).values() for record in found]
        reporter.assigned(consumer.assignment())
        if records:
            say(records=[(record.partition, record.offset) for record in records])
            if options["commit"] == "hand":
                try:
                    consumer.commit()
                except headrace.common.errors.KafkaError as error:
                    say(commit=type(error).__name__)
    consumer.close()


CLIENTS = {
    "confluent-kafka": run_confluent,
    "kafka-python": run_kafka_python,
    "aiokafka": run_aiokafka,
    "headrace": run_headrace,
}


def main() -> None:
    client, bootstrap, group, topic, options = sys.argv[1:]
    say(started=threading.get_native_id())
    CLIENTS[client](bootstrap, group, topic, json.loads(options))
    say(left=True)


if __name__ == "__main__":
    main()
