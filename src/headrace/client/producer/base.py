"""The common base of the blocking and the asyncio producer: configs, and `send` beyond the open batch.

`_append` and `send_arrow` are coroutines that wait for metadata and memory with `_wait_for_partition` and
`_wait_for_memory`. The asyncio producer awaits them. The blocking producer implements the two waits by blocking the
calling thread. Its coroutines never suspend, so `run_blocking` runs them in one step.
"""

from collections.abc import Coroutine
from typing import Any, TypeVar

from headrace.client.config.types import ProducerConfig
from headrace.client.core import ClientCore
from headrace.client.producer import serializers
from headrace.client.producer._batch import FutureRecordMetadata
from headrace.client.producer._send import RecordAppender, SerializedRecord
from headrace.client.producer.accumulator import TOPIC_FORGOTTEN
from headrace.client.producer.config import check_config
from headrace.client.producer.core import ProducerCore
from headrace.client.producer.partitioners import partitioner_for
from headrace.common.clock import SystemClock

__all__ = ["BaseProducer", "run_blocking"]

T = TypeVar("T")


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that never suspends, and returns its result."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise AssertionError("a coroutine of the blocking producer has suspended")


class BaseProducer(RecordAppender):
    """A producer without its waits for metadata and memory."""

    def __init__(self, config: ProducerConfig):
        self.config = check_config(config)
        """The parsed configuration, for example `config.acks` or `config["acks"]`."""
        self._clock = SystemClock()
        self._key_serializer = serializers.prepare(self.config.key_serializer)
        self._value_serializer = serializers.prepare(self.config.value_serializer)
        self._partitioner = partitioner_for(self.config.partitioner)
        self._ignore_keys = self.config.partitioner_ignore_keys
        self._max_record_bytes = min(self.config.max_request_size, self.config.buffer_memory)
        self._on_delivery = self.config.on_delivery

    @property
    def _core(self) -> ProducerCore:
        """The parts on the event loop. Raises if the producer cannot be used."""
        raise NotImplementedError

    @property
    def _running_client(self) -> ClientCore[ProducerConfig] | None:
        """The shared part of the client, for `headrace.metrics`, or None if it is not running here."""
        raise NotImplementedError

    def _start(self, core: ProducerCore) -> None:
        """Connects `send` to the accumulator of a new core."""
        self._topics = core.accumulator.topics
        self._interceptors = core.interceptors or None
        self._check_state = None if core.transactions is None else core.transactions.check_open

    async def _append(self, record: SerializedRecord) -> FutureRecordMetadata:
        """Appends a record to the accumulator, which wakes the sender. Waits for metadata and memory, together at most
        `max.block.ms`."""
        core = self._core
        error = core.check_record(record)
        if error is not None:
            return record.fail(error)
        deadline = self._block_deadline()
        buffer: bytearray | None = None
        try:
            while True:
                while not self._choose_partition(record):
                    await self._wait_for_partition(record.topic, record.partition, deadline)
                result = core.accumulator.append(record, buffer)
                if isinstance(result, FutureRecordMetadata):
                    return result
                buffer = None if result == TOPIC_FORGOTTEN else await self._wait_for_memory(result, deadline)
        except Exception as error:
            if self._interceptors is not None:
                self._interceptors.on_acknowledgement(error, None)
            raise

    def _block_deadline(self) -> float:
        """Returns the time at which a call that starts now has blocked for `max.block.ms`."""
        return self._core.clock.monotonic() + self.config.max_block_ms / 1000

    async def _wait_for_partition(self, topic: str, partition: int, deadline: float) -> None:
        """Waits until the metadata has the topic and the partition. Partition -1 stands for any partition."""
        raise NotImplementedError

    async def _wait_for_memory(self, size: int, deadline: float, wants_buffer: bool = True) -> bytearray | None:
        """Waits for `size` bytes of memory. Returns a buffer, or None if the bytes are only to be counted."""
        raise NotImplementedError

    async def _yield_to_sender(self) -> None:
        """Lets the sender run: if it shares this thread, or if it has more to send than keeps brokers busy."""

    def bootstrap_connected(self) -> bool:
        """Returns True if the producer has received metadata from a broker."""
        return bool(self._core.client.metadata.view.nodes)

    def _partitions(self, topic: str) -> set[int]:
        return set(range(len(self._topics[topic].queues)))
