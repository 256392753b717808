"""A tour of the broker: write and read with other projects' clients, kill the broker, and check that no record is lost.

    python examples/broker_tour.py [--records 200000] [--directory DIR]

The broker is `headrace server` in its own process. confluent-kafka writes; kafka-python and aiokafka read as members of
one group. The tour kills the broker with SIGKILL during the writes, and again while it copies the records in
transactions, and restarts it each time. Every step checks its result.
"""

import argparse
import asyncio
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import aiokafka
import confluent_kafka
import kafka
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC = "tour"
COPY = "tour-copy"
COPIED_AT_ONCE = 5_000
GROUP_SECONDS = 60.0
PARTITIONS = 4
VALUE_BYTES = 100

Found = dict[tuple[int, int], bytes]
"""Values by partition and offset."""


class Server:
    """`headrace server` as a process. It keeps its port when it restarts."""

    def __init__(self, directory: Path):
        self._directory = directory
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        listener = f"listeners=PLAINTEXT://{self.address}"
        command = ["server", "--log-level", "ERROR", "-o", listener, "-o", f"log.dirs={self._directory}"]
        command += ["-o", "group.initial.rebalance.delay.ms=1000"]  # both members join within this time
        self._process = subprocess.Popen(
            [sys.executable, "-m", "headrace", *command], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith("ready"):
            sys.exit(f"the broker did not start: {line}")
        self.port = int(line.rsplit(":", 1)[1])

    def stop(self, signal_number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(signal_number)
            self._process.communicate()
            self._process = None


class Writer:
    """Sends numbered records, and remembers the partition and offset of each acknowledged one."""

    def __init__(self, address: str):
        # Idempotence: retries after the kill neither duplicate nor reorder records.
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )
        self.acknowledged: Found = {}

    def send(self, numbers: range) -> None:
        for number in numbers:
            value = b"%0*d" % (VALUE_BYTES, number)
            while True:
                try:
                    self._producer.produce(TOPIC, value, key=b"%d" % (number % 1000), on_delivery=self._done)
                    break
                except BufferError:
                    self._producer.poll(0.1)
            self._producer.poll(0)

    def _done(self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is not None:
            sys.exit(f"record not delivered: {error}")
        self.acknowledged[message.partition(), message.offset()] = message.value()

    def flush(self) -> None:
        if self._producer.flush(60):
            sys.exit("records were not delivered within a minute")


def create_topic(server: Server) -> str:
    admin = AdminClient({"bootstrap.servers": server.address})
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (TOPIC, COPY)]).values():
        future.result(10)
    return f"{TOPIC} and {COPY} with {PARTITIONS} partitions each"


def read_in_a_group(server: Server, written: Writer) -> str:
    """Reads with two members of one group, from different client projects, which commit their offsets."""
    found: Found = {}
    wanted = len(written.acknowledged)
    done = threading.Event()
    shares = {"kafka-python": 0, "aiokafka": 0}

    def kafka_python() -> None:
        consumer = kafka.KafkaConsumer(
            TOPIC, bootstrap_servers=server.address, group_id="readers", auto_offset_reset="earliest"
        )
        while not done.is_set():
            for tp, records in consumer.poll(timeout_ms=100, max_records=5_000).items():
                found.update({(tp.partition, record.offset): record.value for record in records})
                shares["kafka-python"] += len(records)
        consumer.close()

    async def aio() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            TOPIC, bootstrap_servers=server.address, group_id="readers", auto_offset_reset="earliest"
        )
        await consumer.start()
        while not done.is_set():
            for tp, records in (await consumer.getmany(timeout_ms=100, max_records=5_000)).items():
                found.update({(tp.partition, record.offset): record.value for record in records})
                shares["aiokafka"] += len(records)
        await consumer.stop()

    members = [threading.Thread(target=kafka_python), threading.Thread(target=lambda: asyncio.run(aio()))]
    for member in members:
        member.start()
    deadline = time.monotonic() + GROUP_SECONDS
    while len(found) < wanted and time.monotonic() < deadline:
        time.sleep(0.05)
    done.set()
    for member in members:
        member.join()
    counts = ", ".join(f"{name} {count:,}" for name, count in shares.items())
    return f"{compare(written.acknowledged, found)} ({counts})"


def copy_with_transactions(server: Server, written: Writer) -> str:
    """Copies in transactions that include the consumer's offsets, and kills the broker in the middle."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": server.address,
            "group.id": "copy",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": server.address,
            "transactional.id": "copy",
            # Otherwise librdkafka 2.16 can hang in send_offsets_to_transaction after its only broker was down.
            "metadata.recovery.strategy": "none",
            "log_level": 0,
        }
    )
    producer.init_transactions(60)
    consumer.subscribe([TOPIC])
    wanted, copied, kill_at = len(written.acknowledged), 0, len(written.acknowledged) // 2
    while copied < wanted:
        messages = [message for message in consumer.consume(COPIED_AT_ONCE, 1.0) if not message.error()]
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            producer.produce(COPY, message.value(), message.key(), partition=message.partition())
        if copied <= kill_at < copied + len(messages):
            server.stop(signal.SIGKILL)
            server.start()
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 60
        )
        producer.commit_transaction(60)
        copied += len(messages)
    consumer.close()
    return f"{copied:,} records copied in transactions, with a SIGKILL in between"


def read_committed(server: Server, written: Writer) -> str:
    """Reads the copy with `read_committed`, and checks that each record is there once and in order."""
    partitions = [kafka.TopicPartition(COPY, index) for index in range(PARTITIONS)]
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=server.address,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    consumer.assign(partitions)
    ends = consumer.end_offsets(partitions)
    found: dict[int, list[bytes]] = {index: [] for index in range(PARTITIONS)}
    while any(consumer.position(tp) < ends[tp] for tp in partitions):
        for tp, records in consumer.poll(timeout_ms=1000, max_records=10_000).items():
            found[tp.partition] += [record.value for record in records]
    consumer.close()
    for index, values in found.items():
        wanted = [value for (partition, _), value in sorted(written.acknowledged.items()) if partition == index]
        if values != wanted:
            sys.exit(
                f"partition {COPY}-{index} differs from {TOPIC}-{index}: {len(values)} records, expected {len(wanted)}"
            )
    return f"{sum(map(len, found.values())):,} records, each exactly once and in order"


def compare(written: Found, found: Found) -> str:
    lost = [at for at, value in written.items() if found.get(at) != value]
    if lost:
        sys.exit(f"{len(lost)} acknowledged records are lost or changed; the first (partition, offset) is {lost[0]}")
    return f"{len(found):,} records; all acknowledged records are unchanged"


def kill_under_load(server: Server, writer: Writer, numbers: range) -> str:
    middle = numbers[len(numbers) // 2]
    writer.send(range(numbers.start, middle))
    server.stop(signal.SIGKILL)
    server.start()
    writer.send(range(middle, numbers.stop))
    writer.flush()
    return f"{len(numbers):,} records sent before and after a SIGKILL"


def step(title: str, action: Callable[[], str]) -> None:
    start = time.perf_counter()
    print(f"{title:<34}", end="", flush=True)
    outcome = action()
    print(f"{time.perf_counter() - start:6.2f} s   {outcome}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--records", type=int, default=200_000, help="number of records to write (default: %(default)s)"
    )
    parser.add_argument("--directory", type=Path, help="data directory (default: a temporary directory)")
    arguments = parser.parse_args()
    if arguments.records < 2:
        parser.error("--records: expected at least 2")
    with tempfile.TemporaryDirectory(prefix="headrace-tour-") as temporary:
        tour(Server(arguments.directory or Path(temporary)), arguments.records)


def tour(server: Server, records: int) -> None:
    half = records // 2

    def start() -> str:
        server.start()
        return f"headrace server at {server.address}"

    def write() -> str:
        writer.send(range(half))
        writer.flush()
        return f"{half:,} records of {VALUE_BYTES} bytes, acks=all"

    def stop() -> str:
        server.stop(signal.SIGTERM)
        return "logs flushed, clean shutdown marker written"

    try:
        step("start a broker", start)
        step("create topics (confluent-kafka)", lambda: create_topic(server))
        writer = Writer(server.address)
        step("write (confluent-kafka)", write)
        step("kill the broker while writing", lambda: kill_under_load(server, writer, range(half, records)))
        step("read (kafka-python and aiokafka)", lambda: read_in_a_group(server, writer))
        step("copy, and kill the broker again", lambda: copy_with_transactions(server, writer))
        step("read committed records", lambda: read_committed(server, writer))
        step("shut down gracefully", stop)
    finally:
        server.stop(signal.SIGKILL)


if __name__ == "__main__":
    main()
