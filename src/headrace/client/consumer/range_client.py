"""Reads known ranges of offsets: for batch engines, which keep the positions themselves.

    client = RangeClient({"bootstrap.servers": "localhost:9092"})
    client.offsets({tp: EARLIEST}), client.offsets({tp: LATEST})
    for columns in client.read(tp, 0, 1000):        # Arrow arrays, a few MB each
        ...

There is no group, no subscription and no stored position. A background thread runs the event loop. `RangeFetcher` keeps
one fetch in flight while the caller processes the last response, and fetches nothing beyond the end. The caller's
thread decodes the records.

Invariants: records are returned in order and exactly once. An offset that the log does not have raises
`OffsetOutOfRangeError` and is never skipped silently. Retriable errors are retried until nothing has arrived for
`patience_ms`.
"""

import asyncio
import logging
from collections.abc import Generator, Iterable, Mapping

from headrace.client.background import LoopThread
from headrace.client.config.consumer import CONSUMER_KEYS
from headrace.client.config.types import ConsumerConfig
from headrace.client.consumer.errors import CorruptBatchError
from headrace.client.consumer.fetch_session_handler import RequestedPartition
from headrace.client.consumer.list_offsets import EARLIEST, LATEST, group_by_leader, list_offsets
from headrace.client.consumer.range_fetcher import RangeColumns, RangeDecoder, RangeFetcher, fetch_once
from headrace.client.core import ClientCore
from headrace.client.metadata import check_name
from headrace.common.errors import CorruptRecordError, KafkaError, UnknownTopicOrPartitionError
from headrace.common.types import TopicPartition
from headrace.protocol import ApiKey

__all__ = ["EARLIEST", "LATEST", "RangeClient", "RangeColumns"]

_logger = logging.getLogger(__name__)

_WAIT_CONNECTION = "wait"
_WAIT_AFTER_ERROR_SECONDS = 0.02


class RangeClient:
    """A client that reads ranges of offsets. One thread at a time may use it. Takes the consumer's configuration."""

    def __init__(self, config: Mapping[str, object]):
        self.config = CONSUMER_KEYS.load(config)
        self._thread, self._core = LoopThread.start("headrace-ranges", self._create_core)

    async def _create_core(self) -> ClientCore[ConsumerConfig]:
        return ClientCore(self.config, allow_auto_create=False)

    def close(self) -> None:
        """May be called twice."""
        if self._thread.is_alive:
            self._thread.run(self._core.close())
            self._thread.stop()

    # ---- cluster

    def _timeout(self, timeout_ms: float | None) -> float:
        return float(self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms)

    def topics(self, timeout_ms: float | None = None) -> list[str]:
        """Requests the names of all topics, including internal topics unless `exclude.internal.topics` is set."""
        view = self._thread.run(self._core.metadata.update_all(self._timeout(timeout_ms)))
        return sorted(view.names(include_internal=not self.config.exclude_internal_topics))

    def partitions(self, topics: Iterable[str], timeout_ms: float | None = None) -> dict[str, list[int]]:
        """Requests the partition numbers of topics. Leaves out topics that do not exist. Raises the error of a topic
        that this client must not access."""
        names = sorted(set(topics))
        for name in names:
            check_name(name)
        if not names:
            return {}
        view = self._thread.run(self._core.metadata.update(names, self._timeout(timeout_ms)))
        partitions: dict[str, list[int]] = {}
        for name in names:
            info = view.topic(name)
            if info is None or (info.error is UnknownTopicOrPartitionError and not info.partitions):
                continue
            if info.error is not None and not info.partitions:
                raise info.error(f"topic {name}: {(info.error.__doc__ or '').strip()}")
            partitions[name] = [partition.partition for partition in info.partitions]
        return partitions

    def offsets(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Returns the offsets at timestamps, or at EARLIEST or LATEST. An offset is -1 if no record is that new. With
        `read_committed`, LATEST is the last stable offset."""
        if not timestamps:
            return {}
        listed = self._thread.run(
            list_offsets(
                self._core.pool,
                self._core.metadata,
                timestamps,
                read_committed=self.config.isolation_level == "read_committed",
                timeout_ms=self._timeout(timeout_ms),
                backoff=self._core.backoff,
            )
        )
        return {tp: data.offset for tp, data in listed.items()}

    def wait_for_records(self, positions: Mapping[TopicPartition, int], timeout_ms: float) -> bool:
        """Waits until a partition has records at its position, or an error occurs. Returns False after `timeout_ms`.
        With `read_committed` records of open transactions do not count."""
        return self._thread.run(self._wait_for_records(positions, timeout_ms))

    async def _wait_for_records(self, positions: Mapping[TopicPartition, int], timeout_ms: float) -> bool:
        view, loop = self._core.metadata.view, self._core.loop
        nodes, _ = group_by_leader(view, positions)
        if not nodes:
            await asyncio.sleep(timeout_ms / 1000)
            return False
        waiting = {
            loop.create_task(self._wait_at_broker(node_id, {tp: positions[tp] for tp in tps}, timeout_ms))
            for node_id, tps in nodes.items()
        }
        try:
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if any(task.result() for task in done):
                    return True
            return False
        finally:
            for task in waiting:
                task.cancel()

    async def _wait_at_broker(self, node_id: int, positions: Mapping[TopicPartition, int], timeout_ms: float) -> bool:
        """Sends a fetch that the broker holds until it has records. Requests only one byte, since the records are not
        used."""
        core, view = self._core, self._core.metadata.view
        try:
            await core.pool.connect(node_id, _WAIT_CONNECTION)
            version = core.pool.version(node_id, ApiKey.FETCH)
            partitions = {
                tp: RequestedPartition(view.topic_id(tp.topic), offset, 1, view.leader_epoch(tp))
                for tp, offset in positions.items()
            }
            response = await fetch_once(core, node_id, version, partitions, timeout_ms, 1, 1, _WAIT_CONNECTION)
        except KafkaError as error:
            _logger.debug("Waiting for records at broker %d failed: %s", node_id, error)
            await asyncio.sleep(_WAIT_AFTER_ERROR_SECONDS)
            return True
        return bool(response.error_code) or any(
            partition.error_code or partition.records for topic in response.responses for partition in topic.partitions
        )

    # ---- records

    def read(
        self,
        tp: TopicPartition,
        start: int,
        end: int,
        *,
        patience_ms: float = 120_000,
        target_bytes: int = 2 * 1024 * 1024,
        timestamp_unit: str = "us",
    ) -> Generator[RangeColumns, None, None]:
        """Yields the records from `start` to before `end`, in columns of about `target_bytes`.

        Raises OffsetOutOfRangeError, with the attribute `offset`, if the log does not have `start` or loses a later
        offset. Raises KafkaTimeoutError if nothing arrives for `patience_ms`.
        """
        fetch = RangeFetcher(self._core, tp, start, end, patience_ms)
        decoder = RangeDecoder(end, target_bytes, timestamp_unit)
        try:
            while True:
                try:
                    fetched = self._thread.run(fetch.next())
                except KafkaError:
                    # The rows before the error are valid, and the caller may know how to continue after it.
                    yield from decoder.finish()
                    raise
                if fetched is None:
                    break
                try:
                    yield from decoder.decode(fetched)
                except CorruptRecordError as error:
                    # The bytes may have been damaged in transit: fetch once more from there, without repeating a row.
                    if not self._thread.run(fetch.fetch_again(fetched.next_offset)):
                        raise CorruptBatchError(tp, fetched.next_offset, error) from error
            yield from decoder.finish()
        finally:
            if self._thread.is_alive:
                self._thread.call(fetch.stop)
