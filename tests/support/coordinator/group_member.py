"""Runs members of consumer groups in a separate process, with the client of another project; one at a time.

    python -m tests.support.coordinator.group_member CLIENT

It reads commands from standard input, one per line: options in JSON (see `MemberOptions` in `group_members`) start a
member; `pause` and `resume` stop and start its polling; `leave` closes it. It writes events to standard output, one
line of JSON each: the assignment, revoked partitions and received records. It ends when standard input ends.
`java/GroupMember.java` does the same with Kafka's client.
"""

import asyncio
import json
import queue
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

PAUSE_SECONDS = 0.1
HEARTBEAT_MS = 300
AUTO_COMMIT_MS = 200
METADATA_MS = 300


_saying = threading.Lock()


def report(**what: Any) -> None:
    with _saying:  # callbacks may run in a thread of the client
        sys.stdout.write(json.dumps(what) + "\n")
        sys.stdout.flush()


class Commands:
    """The commands of the parent process. A thread reads them, so that a member sees them between two polls."""

    def __init__(self) -> None:
        self.is_over = False
        self.is_paused = False
        self._said_paused = False
        self._members: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            order = line.strip()
            if order == "leave":
                self.is_over = True
            elif order in ("pause", "resume"):
                self._said_paused = False
                self.is_paused = order == "pause"
            else:
                self.is_over = self.is_paused = False
                self._members.put(json.loads(order))
        self.is_over = True
        self._members.put(None)

    def waits_for_resume(self) -> bool:
        """Returns True while polling is paused; reports it once."""
        if not self.is_paused:
            return False
        if not self._said_paused:
            self._said_paused = True
            report(paused=True)
        return True

    def next_member(self) -> dict[str, Any] | None:
        return self._members.get()


class Reporter:
    """Reports the assignment whenever it changes."""

    def __init__(self) -> None:
        self._assigned: list[tuple[str, int]] = []

    def assigned(self, partitions: Iterable[Any]) -> None:
        now = sorted((tp.topic, tp.partition) for tp in partitions)
        if now != self._assigned:
            self._assigned = now
            report(assigned=now)

    def revoked(self, partitions: Iterable[Any]) -> None:
        report(revoked=sorted((tp.topic, tp.partition) for tp in partitions))


def run_confluent(options: dict[str, Any], commands: Commands) -> None:
    import confluent_kafka

    settings = {
        "bootstrap.servers": options["bootstrap"],
        "group.id": options["group"],
        "auto.offset.reset": "earliest",
        "session.timeout.ms": options["session_ms"],
        "max.poll.interval.ms": options["poll_interval_ms"],
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "topic.metadata.refresh.interval.ms": METADATA_MS,
        "enable.auto.commit": options["commit"] == "auto",
        "auto.commit.interval.ms": AUTO_COMMIT_MS,
        "fetch.wait.max.ms": 100,
        "reconnect.backoff.max.ms": 500,
        "partition.assignment.strategy": ",".join(options["strategies"]),
        "log_level": 0,
    }
    if options["instance"]:
        settings["group.instance.id"] = options["instance"]
    consumer = confluent_kafka.Consumer(settings)
    reporter = Reporter()
    consumer.subscribe([options["topic"]], on_revoke=lambda _, partitions: reporter.revoked(partitions))
    while not commands.is_over:
        if commands.waits_for_resume():
            threading.Event().wait(PAUSE_SECONDS)
            continue
        messages = [message for message in consumer.consume(500, options["poll_ms"] / 1000) if message.error() is None]
        reporter.assigned(consumer.assignment())
        if messages:
            report(records=[(message.topic(), message.partition(), message.offset()) for message in messages])
            if options["commit"] == "hand":
                try:
                    consumer.commit(asynchronous=False)
                except confluent_kafka.KafkaException as error:
                    report(commit=error.args[0].name())
    consumer.close()


def run_kafka_python(options: dict[str, Any], commands: Commands) -> None:
    import warnings

    warnings.simplefilter("ignore")
    import kafka
    import kafka.errors
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

    assignors = (
        RangePartitionAssignor,
        RoundRobinPartitionAssignor,
        StickyPartitionAssignor,
        CooperativeStickyAssignor,
    )
    # `topics`: otherwise it joins before it knows any partitions, rejoins when it does, and loses that join if a
    # poll ends before it.
    _run_like_kafka_python(
        kafka, _pick(assignors, options["strategies"]), options, commands, kafka.KafkaConsumer.topics
    )


def run_headrace(options: dict[str, Any], commands: Commands) -> None:
    import headrace
    import headrace.errors

    _run_like_kafka_python(headrace, options["strategies"], options, commands)


def _run_like_kafka_python(
    library: Any,
    strategies: list[Any],
    options: dict[str, Any],
    commands: Commands,
    prepare: Callable[[Any], object] = lambda _: None,
) -> None:
    reporter = Reporter()

    class Listener(library.ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            reporter.revoked(revoked)

        def on_partitions_assigned(self, assigned: Any) -> None:
            reporter.assigned(consumer.assignment())

    make = library.KafkaConsumer if hasattr(library, "KafkaConsumer") else library.Consumer
    consumer = make(
        bootstrap_servers=options["bootstrap"],
        group_id=options["group"],
        group_instance_id=options["instance"],
        auto_offset_reset="earliest",
        session_timeout_ms=options["session_ms"],
        max_poll_interval_ms=options["poll_interval_ms"],
        heartbeat_interval_ms=HEARTBEAT_MS,
        metadata_max_age_ms=METADATA_MS,
        enable_auto_commit=options["commit"] == "auto",
        auto_commit_interval_ms=AUTO_COMMIT_MS,
        fetch_max_wait_ms=100,
        partition_assignment_strategy=strategies,
    )
    pattern = options["topic"] if options["topic"].startswith("^") else None
    consumer.subscribe([] if pattern else [options["topic"]], pattern=pattern, listener=Listener())
    prepare(consumer)
    while not commands.is_over:
        if commands.waits_for_resume():
            threading.Event().wait(PAUSE_SECONDS)
            continue
        try:
            messages = [message for found in consumer.poll(options["poll_ms"]).values() for message in found]
        except library.errors.KafkaError as error:  # the broker is not available
            report(error=repr(error))
            continue
        reporter.assigned(consumer.assignment())
        if messages:
            report(records=[(message.topic, message.partition, message.offset) for message in messages])
            if options["commit"] == "hand":
                try:
                    consumer.commit()
                except library.errors.KafkaError as error:
                    report(commit=type(error).__name__)
    consumer.close()


def run_aiokafka(options: dict[str, Any], commands: Commands) -> None:
    import aiokafka
    import aiokafka.errors
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

    assignors = (RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor)
    reporter = Reporter()

    class Listener(aiokafka.ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: Any) -> None:
            reporter.revoked(revoked)

        def on_partitions_assigned(self, assigned: Any) -> None:
            pass

    async def main() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=options["bootstrap"],
            group_id=options["group"],
            group_instance_id=options["instance"],
            auto_offset_reset="earliest",
            session_timeout_ms=options["session_ms"],
            max_poll_interval_ms=options["poll_interval_ms"],
            heartbeat_interval_ms=HEARTBEAT_MS,
            metadata_max_age_ms=METADATA_MS,
            enable_auto_commit=options["commit"] == "auto",
            auto_commit_interval_ms=AUTO_COMMIT_MS,
            fetch_max_wait_ms=100,
            partition_assignment_strategy=_pick(assignors, options["strategies"]),
        )
        await consumer.start()
        pattern = options["topic"] if options["topic"].startswith("^") else None
        consumer.subscribe([] if pattern else [options["topic"]], pattern=pattern, listener=Listener())
        while not commands.is_over:
            if commands.waits_for_resume():
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            found = await consumer.getmany(timeout_ms=options["poll_ms"])
            messages = [message for batch in found.values() for message in batch]
            reporter.assigned(consumer.assignment())
            if messages:
                report(records=[(message.topic, message.partition, message.offset) for message in messages])
                if options["commit"] == "hand":
                    try:
                        await consumer.commit()
                    except aiokafka.errors.KafkaError as error:
                        report(commit=type(error).__name__)
        await consumer.stop()

    asyncio.run(main())


def _pick(assignors: Iterable[Any], names: list[str]) -> list[Any]:
    by_name = {assignor.name: assignor for assignor in assignors}
    return [by_name[name] for name in names]


CLIENTS: dict[str, Callable[[dict[str, Any], Commands], None]] = {
    "confluent-kafka": run_confluent,
    "kafka-python": run_kafka_python,
    "aiokafka": run_aiokafka,
    "headrace": run_headrace,
}


def main() -> None:
    run = CLIENTS[sys.argv[1]]
    commands = Commands()
    while (options := commands.next_member()) is not None:
        run(options, commands)
        report(left=True)


if __name__ == "__main__":
    main()
