"""A tour of the broker: start it, write and read with clients of other projects, kill it, and see that all is there.

    python examples/broker_tour.py [--records 200000] [--directory DIR]

The broker is `headrace server` in a process of its own. confluent-kafka writes, kafka-python and aiokafka read; the
broker is killed with SIGKILL while records are written, and started again. Every step checks what it did.
"""

import argparse
import asyncio
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import aiokafka
import confluent_kafka
import kafka
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC = "tour"
PARTITIONS = 4
VALUE_BYTES = 100


class Server:
    """`headrace server` as a process, on the same port over restarts."""

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
        self._process = subprocess.Popen(
            [sys.executable, "-m", "headrace", *command], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith("ready"):
            sys.exit(f"the broker did not start: {line}")
        self.port = int(line.rsplit(":", 1)[1])

    def end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.communicate()
            self._process = None


class Writer:
    """Sends numbered records, and notes where each acknowledged one went."""

    def __init__(self, address: str):
        # One request at a time: without idempotence, retries of several could change their order.
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": address, "acks": "all", "linger.ms": 5, "max.in.flight": 1, "log_level": 0}
        )
        self.acknowledged: dict[tuple[int, int], bytes] = {}

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
            sys.exit(f"a record was not delivered: {error}")
        self.acknowledged[message.partition(), message.offset()] = message.value()

    def flush(self) -> None:
        if self._producer.flush(60):
            sys.exit("records were not delivered within a minute")


def create_topic(server: Server) -> str:
    admin = AdminClient({"bootstrap.servers": server.address})
    for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
        future.result(10)
    return f"{TOPIC} with {PARTITIONS} partitions"


def read_with_kafka_python(server: Server, written: Writer) -> str:
    partitions = [kafka.TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=server.address, auto_offset_reset="earliest", enable_auto_commit=False
    )
    consumer.assign(partitions)
    ends = consumer.end_offsets(partitions)
    found: dict[tuple[int, int], bytes] = {}
    while any(consumer.position(tp) < ends[tp] for tp in partitions):
        for tp, records in consumer.poll(timeout_ms=1000, max_records=10_000).items():
            found.update({(tp.partition, record.offset): record.value for record in records})
    consumer.close()
    return compare(written.acknowledged, found)


async def read_with_aiokafka(server: Server, written: Writer) -> str:
    partitions = [aiokafka.TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=server.address, enable_auto_commit=False)
    await consumer.start()
    try:
        consumer.assign(partitions)
        await consumer.seek_to_beginning()
        ends = await consumer.end_offsets(partitions)
        found: dict[tuple[int, int], bytes] = {}
        while len(found) < sum(ends.values()):
            for tp, records in (await consumer.getmany(timeout_ms=1000)).items():
                found.update({(tp.partition, record.offset): record.value for record in records})
    finally:
        await consumer.stop()
    return compare(written.acknowledged, found)


def compare(written: dict[tuple[int, int], bytes], found: dict[tuple[int, int], bytes]) -> str:
    lost = [at for at, value in written.items() if found.get(at) != value]
    if lost:
        sys.exit(f"{len(lost)} acknowledged records are lost or changed, the first at {lost[0]}")
    return f"{len(found):,} records, each acknowledged one as it was sent"


def kill_under_load(server: Server, writer: Writer, numbers: range) -> str:
    middle = numbers[len(numbers) // 2]
    writer.send(range(numbers.start, middle))
    server.end(signal.SIGKILL)
    server.start()
    writer.send(range(middle, numbers.stop))
    writer.flush()
    return f"{len(numbers):,} records sent around a SIGKILL"


def step(title: str, action: Callable[[], str]) -> None:
    start = time.perf_counter()
    print(f"{title:<34}", end="", flush=True)
    outcome = action()
    print(f"{time.perf_counter() - start:6.2f} s   {outcome}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--records", type=int, default=200_000, help="how many to write (default: %(default)s)")
    parser.add_argument("--directory", type=Path, help="where to keep the data (default: a temporary directory)")
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
        server.end(signal.SIGTERM)
        return "logs flushed and marked as clean"

    try:
        step("start a broker", start)
        step("create a topic (confluent-kafka)", lambda: create_topic(server))
        writer = Writer(server.address)
        step("write (confluent-kafka)", write)
        step("read (kafka-python)", lambda: read_with_kafka_python(server, writer))
        step("kill it while writing", lambda: kill_under_load(server, writer, range(half, records)))
        step("read again (aiokafka)", lambda: asyncio.run(read_with_aiokafka(server, writer)))
        step("stop in order", stop)
    finally:
        server.end(signal.SIGKILL)


if __name__ == "__main__":
    main()
