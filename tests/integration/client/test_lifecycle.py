"""The life cycle of clients: closed, garbage-collected, left open at exit, forked."""

import asyncio
import contextlib
import gc
import itertools
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker.process import eventually
from tests.support.client.producer_logs import read_values

import headrace
from headrace import Admin, Consumer, Producer, aio
from headrace.client.errors import IllegalStateError
from headrace.protocol import ApiKey
from headrace.testing import EmbeddedBroker

PATIENCE = 60
PATIENCE_MS = 60_000
_numbers = itertools.count()

Client = Producer | Consumer | Admin
Make = Callable[[str], Client]
KINDS: list[Make] = [
    lambda servers: Producer(bootstrap_servers=servers),
    lambda servers: Consumer(bootstrap_servers=servers),
    lambda servers: Consumer("lives", bootstrap_servers=servers, group_id=f"group-{next(_numbers)}"),
    lambda servers: Admin(bootstrap_servers=servers),
]
IDS = ["producer", "consumer", "member", "admin"]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker({"group.initial.rebalance.delay.ms": 0}, topics={"lives": 1}) as running:
        yield running


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    name = f"lives-{next(_numbers)}"
    broker.create_topic(name, 1)
    return name


def use(client: Client) -> None:
    if isinstance(client, Producer):
        client.send("lives", b"value").get(timeout_ms=PATIENCE_MS)
    elif isinstance(client, Admin):
        client.list_topics()
    else:
        client.topics()
        client.poll(200)


def client_threads() -> set[threading.Thread]:
    names = ("headrace-producer", "headrace-consumer", "headrace-admin")
    return {thread for thread in threading.enumerate() if thread.name in names}


def run_program(text: str, *arguments: str) -> str:
    """Runs a program and returns its output."""
    path = os.pathsep.join([os.path.dirname(os.path.dirname(headrace.__file__)), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-W", "default::ResourceWarning", "-c", text, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        timeout=PATIENCE,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("make", KINDS, ids=IDS)
def test_close_stops_the_thread_and_is_idempotent(broker: EmbeddedBroker, make: Make) -> None:
    before = client_threads()
    client = make(broker.bootstrap_servers)
    use(client)
    client.close()
    client.close()
    assert client_threads() <= before
    with pytest.raises(IllegalStateError, match="closed"):
        use(client)


@pytest.mark.parametrize(
    "call",
    [
        lambda producer: producer.send("t", b"value"),
        lambda producer: producer.init_transactions(),
        lambda producer: producer.begin_transaction(),
        lambda producer: producer.send_offsets_to_transaction({}, "group"),
        lambda producer: producer.commit_transaction(),
        lambda producer: producer.abort_transaction(),
    ],
)
def test_closed_producer_names_the_reason(broker: EmbeddedBroker, call: Callable[[Producer], Any]) -> None:
    producer = Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="closed")
    producer.close()
    with pytest.raises(IllegalStateError, match="Cannot perform operation after producer has been closed"):
        call(producer)


@pytest.mark.parametrize("make", KINDS, ids=IDS)
def test_garbage_collected_client_is_closed_with_a_warning(broker: EmbeddedBroker, make: Make) -> None:
    before = client_threads()
    client: Client | None = make(broker.bootstrap_servers)
    assert client is not None
    use(client)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        client = None
        gc.collect()
    assert any(issubclass(each.category, ResourceWarning) and "left open" in str(each.message) for each in told)
    eventually(lambda: client_threads() <= before, "the thread to end")


def test_closed_clients_leave_no_threads_or_files(broker: EmbeddedBroker) -> None:
    def files() -> int:
        """Returns open sockets, pipes and pollers, without the broker's log files."""
        found = 0
        for each in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                found += not str(each.readlink()).startswith("/")
        return found

    def threads() -> int:
        """Returns the threads of clients, without those of the broker in this process."""
        names = ("headrace-producer", "headrace-consumer", "headrace-admin")
        return sum(thread.name.startswith(names) for thread in threading.enumerate())

    def cycle() -> None:
        for make in KINDS:
            client = make(broker.bootstrap_servers)
            use(client)
            client.close()

    cycle()
    before, running = files(), threads()
    for _ in range(5):
        cycle()
    eventually(lambda: files() <= before, "files to be closed")
    eventually(lambda: threads() <= running, "threads to end")


class TestProgramExit:
    def test_unclosed_producer_sends_its_records_at_exit(self, broker: EmbeddedBroker, topic: str) -> None:
        told = run_program(
            """
import sys
from headrace import Producer
producer = Producer(bootstrap_servers=sys.argv[1], linger_ms=60_000)
for number in range(1000):
    producer.send(sys.argv[2], b"%d" % number)
""",
            broker.bootstrap_servers,
            topic,
        )
        assert read_values(broker, topic) == [b"%d" % number for number in range(1000)]
        assert "ResourceWarning: headrace.Producer was left open" in told

    def test_unclosed_producer_logs_unsent_records(self, broker: EmbeddedBroker, topic: str) -> None:
        text = """
import sys
from headrace import Producer
from headrace.client.producer import producer as module
module._UNCLOSED_FLUSH_SECONDS = 0.1
producer = Producer(bootstrap_servers=sys.argv[1])
producer.partitions_for(sys.argv[2])
producer.send(sys.argv[2], b"value")
"""
        with broker.faults.drop_reply(ApiKey.PRODUCE):
            told = run_program(text, broker.bootstrap_servers, topic)
        assert "1 batches unsent" in told

    def test_unclosed_consumer_leaves_its_group(self, broker: EmbeddedBroker) -> None:
        group = f"group-{next(_numbers)}"
        run_program(
            """
import sys
from headrace import Consumer
consumer = Consumer("lives", bootstrap_servers=sys.argv[1], group_id=sys.argv[2])
while not consumer.assignment():
    consumer.poll(100)
""",
            broker.bootstrap_servers,
            group,
        )
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            assert admin.describe_groups([group])[group].state == "Empty"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_client_raises_in_forked_child_and_works_in_parent(broker: EmbeddedBroker, topic: str) -> None:
    told = run_program(
        """
import os, sys
from headrace import Admin, Consumer, Producer, TopicPartition
servers, topic = sys.argv[1:]
with Producer(bootstrap_servers=servers) as producer, Admin(bootstrap_servers=servers) as admin:
    consumer = Consumer(bootstrap_servers=servers, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, 0)])
    producer.send(topic, b"before")
    child = os.fork()
    if child == 0:
        try:
            for call in (
                lambda: producer.send(topic, b"child"),
                producer.flush,
                producer.begin_transaction,
                lambda: producer.partitions_for("another"),
                lambda: consumer.poll(100),
                lambda: next(consumer),
                consumer.topics,
                admin.list_topics,
            ):
                try:
                    print("not refused:", call())
                except Exception as error:
                    if "before a fork" not in str(error):
                        print("another error:", repr(error))
            for client in (producer, consumer, admin):
                client.close()
            with Producer(bootstrap_servers=servers) as own:
                own.send(topic, b"child").get(timeout_ms=30_000)
            print("child is done", flush=True)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    producer.send(topic, b"after").get(timeout_ms=30_000)
    seen = []
    while len(seen) < 3:
        seen += [record.value for records in consumer.poll(1000).values() for record in records]
    consumer.close()
    print(sorted(seen))
""",
        broker.bootstrap_servers,
        topic,
    )
    assert told.splitlines() == ["child is done", "[b'after', b'before', b'child']"]


class TestAsyncio:
    def test_client_raises_on_another_loop(self, broker: EmbeddedBroker) -> None:
        async def start() -> tuple[aio.Producer, aio.Consumer]:
            producer = aio.Producer(bootstrap_servers=broker.bootstrap_servers)
            consumer = aio.Consumer("lives", bootstrap_servers=broker.bootstrap_servers)
            await producer.start()
            await consumer.start()
            return producer, consumer

        async def use(producer: aio.Producer, consumer: aio.Consumer) -> None:
            for call in (producer.send("lives", b""), producer.close(), consumer.poll(100), consumer.close()):
                with pytest.raises(IllegalStateError, match="another event loop"):
                    await call

        with asyncio.Runner() as first:
            clients = first.run(start())
            with asyncio.Runner() as second:
                second.run(use(*clients))
            for client in clients:
                first.run(client.close())

    def test_cancelled_close_closes_at_once(self, broker: EmbeddedBroker, topic: str) -> None:
        async def main() -> None:
            producer = aio.Producer(bootstrap_servers=broker.bootstrap_servers)
            await producer.start()
            await producer.partitions_for(topic)
            broker.pause()
            try:
                future = await producer.send(topic, b"value")
                closing = asyncio.create_task(producer.close())
                while not producer._is_closed:
                    await asyncio.sleep(0)
                closing.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await closing
                with pytest.raises(IllegalStateError, match="closed"):
                    await future
                await producer.close()
                assert asyncio.all_tasks() == {asyncio.current_task()}
            finally:
                broker.resume()

        asyncio.run(main())

    def test_close_ends_poll_of_another_task(self, broker: EmbeddedBroker) -> None:
        async def main() -> None:
            consumer = aio.Consumer("lives", bootstrap_servers=broker.bootstrap_servers)
            await consumer.start()
            waiting = asyncio.create_task(consumer.poll(PATIENCE * 1000))
            while not consumer._is_polling:
                await asyncio.sleep(0)
            await consumer.stop()
            with pytest.raises(IllegalStateError, match="closed"):
                await waiting

        asyncio.run(main())

    @pytest.mark.parametrize("kind", [aio.Producer, aio.Consumer])
    def test_unclosed_client_warns(self, broker: EmbeddedBroker, kind: type[Any]) -> None:
        async def main() -> None:
            client = kind(bootstrap_servers=broker.bootstrap_servers)
            await client.start()
            with pytest.warns(ResourceWarning, match="left open"):
                client.__del__()
            await client.close()

        asyncio.run(main())
