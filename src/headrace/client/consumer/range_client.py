"""Reads stretches of partitions whose begin and end are known: what a batch engine does, which keeps positions itself.

    client = RangeClient({"bootstrap.servers": "localhost:9092"})
    client.offsets({tp: EARLIEST}), client.offsets({tp: LATEST})
    for columns in client.read(tp, 0, 1000):        # Arrow arrays, a few MB each
        ...

No group, no subscription, no position that lives on. A thread of its own runs the loop; `RangeFetcher` keeps one fetch
under way while the caller works on the last reply, and asks for nothing behind the end. Decoding happens in the
caller's thread.

Invariants: records come in order, each once; an offset that the log does not have (any more) raises
`OffsetOutOfRangeError`, and is never passed over silently; whatever another attempt may mend is tried again until
nothing has come for `patience_ms`.
"""

import asyncio
import logging
from collections.abc import Generator, Iterable, Mapping

from headrace.client.background import LoopThread
from headrace.client.config.common import ClientSettings
from headrace.client.config.consumer import CONSUMER_KEYS
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

_WAIT_PURPOSE = "wait"
_WAIT_AFTER_ERROR_SECONDS = 0.02


class RangeClient:
    """See the module. For one thread at a time; settings are the consumer's."""

    def __init__(self, settings: Mapping[str, object]):
        self.settings = ClientSettings.load(CONSUMER_KEYS, settings)
        self._thread = LoopThread("headrace-ranges")
        try:
            self._core = self._thread.run(self._make())
        except BaseException:
            self._thread.stop()
            raise

    async def _make(self) -> ClientCore:
        return ClientCore(self.settings, allow_auto_create=False)

    def close(self) -> None:
        """May be called twice."""
        if self._thread.is_alive:
            self._thread.run(self._core.close())
            self._thread.stop()

    # The cluster

    def _timeout(self, timeout_ms: float | None) -> float:
        return float(self.settings.default_api_timeout_ms if timeout_ms is None else timeout_ms)

    def topics(self, timeout_ms: float | None = None) -> list[str]:
        """The names of all topics; asks the cluster. Internal ones too, unless `exclude.internal.topics` is set."""
        view = self._thread.run(self._core.metadata.update_all(self._timeout(timeout_ms)))
        return sorted(view.names(include_internal=not self.settings.exclude_internal_topics))

    def partitions(self, topics: Iterable[str], timeout_ms: float | None = None) -> dict[str, list[int]]:
        """The numbers of the partitions of topics; asks the cluster. Topics that do not exist are left out. Raises the
        error of a topic that may not be seen."""
        names = sorted(set(topics))
        for name in names:
            check_name(name)
        if not names:
            return {}
        view = self._thread.run(self._core.metadata.update(names, self._timeout(timeout_ms)))
        found: dict[str, list[int]] = {}
        for name in names:
            info = view.topic(name)
            if info is None or (info.error is UnknownTopicOrPartitionError and not info.partitions):
                continue
            if info.error is not None and not info.partitions:
                raise info.error(f"topic {name}: {(info.error.__doc__ or '').strip()}")
            found[name] = [each.partition for each in info.partitions]
        return found

    def offsets(
        self, wanted: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Offsets at timestamps, or at EARLIEST or LATEST; -1 where no record is as new. With `read_committed` the
        latest is the first offset of an open transaction."""
        if not wanted:
            return {}
        found = self._thread.run(
            list_offsets(
                self._core.pool,
                self._core.metadata,
                wanted,
                read_committed=self.settings.isolation_level == "read_committed",
                timeout_ms=self._timeout(timeout_ms),
                backoff=self._core.backoff,
            )
        )
        return {tp: each.offset for tp, each in found.items()}

    def wait_for_records(self, positions: Mapping[TopicPartition, int], timeout_ms: float) -> bool:
        """Waits until a partition has records from its position on, or what keeps it from telling; False if time is up
        before. With `read_committed` records of open transactions do not count."""
        return self._thread.run(self._wait_for_records(positions, timeout_ms))

    async def _wait_for_records(self, positions: Mapping[TopicPartition, int], timeout_ms: float) -> bool:
        view, loop = self._core.metadata.view, self._core.loop
        nodes, _ = group_by_leader(view, positions)
        if not nodes:
            await asyncio.sleep(timeout_ms / 1000)
            return False
        waiting = {
            loop.create_task(self._wait_at(node_id, {tp: positions[tp] for tp in tps}, timeout_ms))
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

    async def _wait_at(self, node_id: int, positions: Mapping[TopicPartition, int], timeout_ms: float) -> bool:
        """Has a broker hold a fetch back until it has something. As little as possible is asked for, since it is not
        looked at."""
        core, view = self._core, self._core.metadata.view
        try:
            await core.pool.connect(node_id, _WAIT_PURPOSE)
            version = core.pool.version(node_id, ApiKey.FETCH)
            wanted = {
                tp: RequestedPartition(view.topic_id(tp.topic), offset, 1, view.leader_epoch(tp))
                for tp, offset in positions.items()
            }
            reply = await fetch_once(core, node_id, version, wanted, timeout_ms, 1, 1, _WAIT_PURPOSE)
        except KafkaError as error:
            _logger.debug("broker %d does not tell of new records: %s", node_id, error)
            await asyncio.sleep(_WAIT_AFTER_ERROR_SECONDS)
            return True
        return bool(reply.error_code) or any(
            part.error_code or part.records for topic in reply.responses for part in topic.partitions
        )

    # Records

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
        """The records from `start` to before `end`, in portions of about `target_bytes` each.

        Raises OffsetOutOfRangeError if the log does not have `start`, or loses what comes next; `offset` of it tells
        where. Raises KafkaTimeoutError if nothing comes for `patience_ms`.
        """
        fetch = RangeFetcher(self._core, tp, start, end, patience_ms)
        portions = RangeDecoder(end, target_bytes, timestamp_unit)
        try:
            while True:
                try:
                    fetched = self._thread.run(fetch.next())
                except KafkaError:
                    # What came before it is good, and the caller may know how to go on behind.
                    yield from portions.finish()
                    raise
                if fetched is None:
                    break
                try:
                    yield from portions.decode(fetched)
                except CorruptRecordError as error:
                    # Maybe only the reply was hurt: once more from there, with nothing handed out twice.
                    if not self._thread.run(fetch.again(fetched.next_offset)):
                        raise CorruptBatchError(tp, fetched.next_offset, error) from error
            yield from portions.finish()
        finally:
            if self._thread.is_alive:
                self._thread.call(fetch.stop)
