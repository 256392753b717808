"""The console's state in a compacted topic of the cluster: history, and what pages keep, such as alert rules.

The topic has one partition. A key begins with the prefix of its owner. At the start, the console reads the whole topic
and hands each record to its owner; later it only writes. Without the right to create or write the topic, the state is
in memory only, and `error` says why. Owner: the loop.
"""

import logging
from collections.abc import Callable

from headrace.aio.consumer import Consumer
from headrace.aio.producer import Producer
from headrace.client.admin.types import NewTopic
from headrace.common.errors import HeadraceError, TopicAlreadyExistsError, UnknownTopicOrPartitionError
from headrace.common.types import TopicPartition
from headrace.console.identity import Identity

__all__ = ["StateTopic"]

_logger = logging.getLogger(__name__)

Loaded = Callable[[str, bytes | None], None]

_CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": 16 << 20,
    "segment.ms": 3_600_000,
    "min.cleanable.dirty.ratio": 0.2,
}
_PRODUCER_CONFIGS = {
    "linger.ms": 50,
    "compression.type": "gzip",
    "request.timeout.ms": 10_000,
    "delivery.timeout.ms": 20_000,
}
_MAX_REPLICAS = 3
_TIMEOUT_MS = 20_000
_POLL_MS = 500
_MAX_IDLE_POLLS = 60


class StateTopic:
    """The topic of one cluster. Register owners, then `open` it once the cluster is reachable."""

    def __init__(self, topic: str | None, identity: Identity):
        self.topic = topic
        self._identity = identity
        self._owners: dict[str, Loaded] = {}
        self._producer: Producer | None = None
        self._unsaved: dict[str, bytes | None] = {}
        """What `save` got before the topic was open."""
        self.is_open = False
        self.error: str | None = None if topic else "history is kept in memory only"
        """Why the state is not stored."""

    def register(self, prefix: str, loaded: Loaded) -> None:
        """Names the owner of all keys with a prefix. It is called with each record at the start, oldest first: the
        last one of a key counts, and a value of None deletes it."""
        self._owners[prefix] = loaded

    async def open(self, brokers: int) -> None:
        """Creates the topic if it does not exist, and reads it. Does nothing the second time."""
        if self.is_open or self.topic is None:
            return
        try:
            await self._create(self.topic, brokers)
            await self._load(self.topic)
            while self._unsaved:
                key, value = next(iter(self._unsaved.items()))
                await self._write(self.topic, key, value)
                if self._unsaved[key] is value:
                    del self._unsaved[key]
        except HeadraceError as error:
            text = " ".join(str(error).split())
            if text != self.error:
                _logger.warning("The console keeps its state in memory only. Topic %s: %s", self.topic, text)
            self.error = text
            return
        self.error = None
        self.is_open = True

    async def _create(self, topic: str, brokers: int) -> None:
        admin = self._identity.admin
        found = await admin.describe_topics([topic], timeout_ms=_TIMEOUT_MS, raise_errors=False)
        error = found[topic].error
        if error is None:
            return
        if not isinstance(error, UnknownTopicOrPartitionError):
            raise error
        replicas = max(1, min(_MAX_REPLICAS, brokers))
        try:
            await admin.create_topics([NewTopic(topic, 1, replicas, topic_configs=_CONFIGS)], timeout_ms=_TIMEOUT_MS)
        except TopicAlreadyExistsError:
            return
        _logger.info("Created topic %s for the console's history", topic)

    async def _load(self, topic: str) -> None:
        tp = TopicPartition(topic, 0)
        config = {
            **self._identity.client_config("consumer"),
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
        async with Consumer(config) as consumer:
            consumer.assign([tp])
            end = (await consumer.end_offsets([tp]))[tp]
            position = (await consumer.beginning_offsets([tp]))[tp]
            consumer.seek(tp, position)
            idle = 0
            while await consumer.position(tp) < end:
                records = await consumer.getmany(timeout_ms=_POLL_MS)
                idle = 0 if records else idle + 1
                if idle > _MAX_IDLE_POLLS:
                    raise HeadraceError(f"reading stopped at offset {await consumer.position(tp)} of {end}")
                for record in records.get(tp, ()):
                    self._hand_over(record.key, record.value)

    def _hand_over(self, key: bytes | None, value: bytes | None) -> None:
        try:
            name = (key or b"").decode()
        except UnicodeDecodeError:
            return
        for prefix, loaded in self._owners.items():
            if name.startswith(prefix):
                loaded(name, value)

    async def put(self, key: str, value: bytes | None) -> None:
        """Sends a value to the topic, without waiting for it; None deletes the key. Does nothing while the state is in
        memory only."""
        if self.is_open and self.topic is not None:
            producer = await self._connected()
            await producer.send(self.topic, value, key.encode(), partition=0)

    async def save(self, key: str, value: bytes | None) -> None:
        """Stores a value and waits until it is stored; None deletes the key. Before the topic is open, it keeps the
        value until then. Raises HeadraceError if the cluster does not take it."""
        if self.topic is None:
            return
        if not self.is_open:
            self._unsaved[key] = value
            return
        await self._write(self.topic, key, value)

    async def _write(self, topic: str, key: str, value: bytes | None) -> None:
        producer = await self._connected()
        try:
            await producer.send_and_wait(topic, value, key.encode(), partition=0)
        except HeadraceError:
            await self.close()  # the error may be fatal for the producer; the next value gets a new one
            raise

    async def _connected(self) -> Producer:
        if self._producer is None:
            config = {**_PRODUCER_CONFIGS, **self._identity.client_config("producer")}
            producer = Producer(config)
            await producer.start()
            self._producer = producer
        return self._producer

    async def flush(self) -> None:
        """Waits until all values are stored."""
        if self._producer is not None:
            await self._producer.flush(timeout_ms=_TIMEOUT_MS)

    async def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            try:
                await producer.close(timeout_ms=3_000)
            except HeadraceError as error:
                _logger.warning("The console's state may be incomplete: %s", error)
