"""Reads record batches of one topic as they are in the log: for tools that show what consumers do not see.

    async with BatchReader(config, "orders") as reader:
        for fetched in await reader.fetch({0: 100}, max_bytes=100_000):
            for batch in fetched.batches: ...

Unlike a consumer's records, batches have their producer, and control batches (transaction markers) are included. There
is no group, no fetch session and no stored position. Owner: the loop that it is created on.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType

from headrace.client.config.consumer import CONSUMER_KEYS
from headrace.client.config.types import ConsumerConfig
from headrace.client.consumer.fetch_session_handler import RequestedPartition
from headrace.client.consumer.list_offsets import EARLIEST, LATEST, group_by_leader, list_offsets
from headrace.client.consumer.range_fetcher import fetch_once
from headrace.client.core import ClientCore
from headrace.client.errors import error_for
from headrace.client.metadata import check_name
from headrace.common.errors import KafkaError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from headrace.common.types import TopicPartition
from headrace.protocol import ApiKey
from headrace.protocol.messages.fetch import PartitionData
from headrace.records import RecordBatch, split_batches

__all__ = ["EARLIEST", "LATEST", "BatchReader", "FetchedBatches"]

_PURPOSE = "batches"


@dataclass(frozen=True)
class FetchedBatches:
    """The response for one partition. The first batch may begin before the fetch offset."""

    partition: int
    fetch_offset: int
    batches: tuple[RecordBatch, ...]
    high_watermark: int
    last_stable_offset: int
    """-1 from old brokers."""
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]
    """Producer id and first offset of aborted transactions; only with `read_committed`."""
    out_of_range: bool = False
    """The log does not have the fetch offset."""

    @property
    def next_offset(self) -> int:
        """Where to continue."""
        return max(self.fetch_offset, self.batches[-1].next_offset) if self.batches else self.fetch_offset


class BatchReader:
    """A client that reads batches of one topic. Takes the consumer's configuration."""

    def __init__(self, config: Mapping[str, object], topic: str):
        check_name(topic)
        self.topic = topic
        self._core: ClientCore[ConsumerConfig] = ClientCore(CONSUMER_KEYS.load(config), allow_auto_create=False)

    async def close(self) -> None:
        """Closes the connections. May be called twice."""
        await self._core.close()

    async def __aenter__(self) -> "BatchReader":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def _timeout_ms(self) -> float:
        return float(self._core.config.default_api_timeout_ms)

    async def partitions(self) -> list[int]:
        """Returns the partition numbers. Raises UnknownTopicOrPartitionError, or the error of the topic."""
        view = await self._core.metadata.update([self.topic], self._timeout_ms)
        info = view.topic(self.topic)
        if info is not None and info.partitions:
            return sorted(partition.partition for partition in info.partitions)
        if info is not None and info.error is not None and info.error is not UnknownTopicOrPartitionError:
            raise info.error(f"Topic {self.topic!r}: {(info.error.__doc__ or '').strip()}")
        raise UnknownTopicOrPartitionError(f"Topic {self.topic!r} does not exist")

    async def offsets(self, timestamps: Mapping[int, int], read_committed: bool = False) -> dict[int, int]:
        """Returns the offsets of partitions at timestamps, EARLIEST or LATEST. -1: no record is that new. With
        `read_committed`, LATEST is the last stable offset."""
        listed = await list_offsets(
            self._core.pool,
            self._core.metadata,
            {TopicPartition(self.topic, partition): timestamp for partition, timestamp in timestamps.items()},
            read_committed=read_committed,
            timeout_ms=self._timeout_ms,
            backoff=self._core.backoff,
        )
        return {tp.partition: data.offset for tp, data in listed.items()}

    async def fetch(
        self,
        positions: Mapping[int, int],
        *,
        max_bytes: int,
        max_wait_ms: float = 0,
        read_committed: bool = False,
    ) -> list[FetchedBatches]:
        """Fetches from all partitions at once, up to `max_bytes` from each. Retries retriable errors.

        A partition of a slow or unreachable leader delays the others.
        """
        core = self._core
        tps = {TopicPartition(self.topic, partition): offset for partition, offset in positions.items()}

        async def attempt() -> list[FetchedBatches]:
            await core.metadata.topic(self.topic, self._timeout_ms)
            nodes, errors = group_by_leader(core.metadata.view, tps)
            for error in errors.values():
                raise error
            return [
                fetched
                for responses in await asyncio.gather(
                    *(
                        self._fetch_from(node_id, {tp: tps[tp] for tp in group}, max_bytes, max_wait_ms, read_committed)
                        for node_id, group in nodes.items()
                    )
                )
                for fetched in responses
            ]

        return await core.retry(attempt, self._timeout_ms + max_wait_ms, f"fetching from topic {self.topic}")

    async def _fetch_from(
        self, node_id: int, offsets: dict[TopicPartition, int], max_bytes: int, max_wait_ms: float, read_committed: bool
    ) -> list[FetchedBatches]:
        core = self._core
        view = core.metadata.view
        await core.pool.connect(node_id, _PURPOSE)
        version = core.pool.version(node_id, ApiKey.FETCH)
        requested = {
            tp: RequestedPartition(view.topic_id(self.topic), offset, max_bytes, view.leader_epoch(tp))
            for tp, offset in offsets.items()
        }
        total = min(max_bytes * len(offsets), core.config.fetch_max_bytes)
        response = await fetch_once(
            core, node_id, version, requested, max_wait_ms, 1, total, _PURPOSE, read_committed=read_committed
        )
        failed = error_for(response.error_code)
        if failed is not None:
            raise failed
        # The request names one topic, so the response does too.
        return [
            self._result(partition, offsets[TopicPartition(self.topic, partition.partition_index)])
            for topic in response.responses
            for partition in topic.partitions
        ]

    def _result(self, data: PartitionData, offset: int) -> FetchedBatches:
        error = error_for(data.error_code)
        out_of_range = isinstance(error, OffsetOutOfRangeError)
        if error is not None and not out_of_range:
            raise _named(error, f"partition {self.topic}-{data.partition_index}")
        assert data.records is None or isinstance(data.records, bytes | bytearray | memoryview)
        return FetchedBatches(
            data.partition_index,
            offset,
            tuple(split_batches(data.records, allow_partial=True)) if data.records else (),
            data.high_watermark,
            data.last_stable_offset,
            data.log_start_offset,
            tuple((one.producer_id, one.first_offset) for one in data.aborted_transactions or ()),
            out_of_range,
        )


def _named(error: KafkaError, about: str) -> KafkaError:
    return type(error)(f"{about}: {error}")
