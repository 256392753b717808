"""The stream reader: decides which offsets each micro-batch reads.

One reader plans the batches. It lives in a Python process next to the driver while the query runs. Each task gets a
pickled copy and calls only `read`, so a task's partition contains everything that the task needs.

    latestOffset(start)     plans a batch: the latest offsets, within the limits, or `start` if there is nothing to read
    partitions(start, end)  splits a batch into tasks (Spark calls it again if it replays the batch)

Invariants:
- The same offsets give the same tasks, even after a restart. This includes the first batch: Spark does not store its
  start, so its end offset contains it (see `offsets`).
- The query fails only after the brokers were unavailable for minutes.
- New partitions are read from their earliest offset.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from headrace.common.clock import Clock, SystemClock
from headrace.common.errors import KafkaError
from headrace.common.types import TopicPartition
from headrace.spark.fetch import RangePartition, quick_ack, read_range, report_loss
from headrace.spark.metadata import Cluster
from headrace.spark.offsets import INITIAL, Offsets, from_spark, start_of, to_spark
from headrace.spark.options import SourceOptions
from headrace.spark.planning import backlog, prorate, ranges_between, split_ranges
from headrace.spark.schema import selected_columns

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["StreamReader"]

_logger = logging.getLogger(__name__)
T = TypeVar("T")

_LONG_POLL_SECONDS = 0.1
"""How long `latestOffset` waits for new records. Without the wait, Spark would call it every 10 ms. The wait is short
because Spark cannot stop a query during a call."""
_RETRY_SECONDS = 0.02
"""The wait before a retry while brokers are unavailable, or while there are no partitions."""
_PARTITIONS_MAX_AGE_SECONDS = 1.0
"""How long the list of partitions is cached."""
_REQUEST_TIMEOUT_MS = 5_000
"""The timeout of one request while brokers are unavailable. Spark cannot stop a query during a request."""

_UNAVAILABLE_SECONDS = 60.0
"""The query fails after the brokers were unavailable for this time multiplied by `fetchOffset.numRetries`."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream of micro-batches."""

    def __init__(self, options: dict[str, str], schema: StructType, cluster: Cluster | None = None):
        self._options = SourceOptions.parse(options, streaming=True)
        self._schema = schema
        selected_columns(schema)  # raises for an unknown column
        self._clock: Clock = SystemClock()
        self._cluster = cluster or Cluster(self._options, clock=self._clock, timeout_ms=_REQUEST_TIMEOUT_MS)
        self._start: Offsets | None = None
        """The start offsets of a new query, resolved from its options; None before."""
        self._partitions: set[TopicPartition] = set()
        self._partitions_at: float | None = None
        self._target: Offsets | None = None
        """The end offsets of a query with `trigger(availableNow=True)`; None for other triggers."""
        self._latest: Offsets = {}
        """How far the partitions could be read at the last check."""
        self._last_planned: Mapping[str, Any] | None = None
        """The last end offset that `latestOffset` returned. A batch with another end is a replay."""
        self._last_batch_at: float | None = None
        self._unavailable_since: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_schema": self._schema}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        quick_ack()

    # ---- offsets

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return dict(INITIAL)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Returns one of the limits that are set. `latestOffset` applies all of them."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        # With failOnDataLoss=false, a missing topic may have been deleted. If it is misspelled, `_query_start` raises.
        allow_missing = not self._options.fail_on_data_loss
        self._target = self._until_available(
            lambda: self._cluster.latest(self._cluster.partitions(allow_missing=allow_missing))
        )

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        return to_spark(self._latest) if self._latest else None

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        deadline = self._clock.monotonic() + _LONG_POLL_SECONDS
        while True:
            try:
                offset = self._next_offset(start, limit)
            except KafkaError as error:
                self._handle_unavailable(error)
                may_return = self._target is None
            else:
                self._unavailable_since = None
                if offset is not None:
                    self._last_planned = offset
                    return offset
                may_return = True
            remaining = deadline - self._clock.monotonic()
            if may_return and (self._target is not None or remaining <= 0):
                return start
            if self._unavailable_since is not None or not self._latest:
                self._clock.sleep(_RETRY_SECONDS)
            elif not self._cluster.wait_for_records(self._latest, 1000 * remaining):
                return start

    def _until_available(self, request: Callable[[], T]) -> T:
        """Retries a request while the brokers are unavailable, and returns its result."""
        while True:
            try:
                result = request()
            except KafkaError as error:
                self._handle_unavailable(error)
                self._clock.sleep(_RETRY_SECONDS)
            else:
                self._unavailable_since = None
                return result

    def _handle_unavailable(self, error: KafkaError) -> None:
        """Raises the error if it is not retriable, or if the brokers have been unavailable for too long."""
        if not error.retriable:
            raise error
        now = self._clock.monotonic()
        if self._unavailable_since is None:
            self._unavailable_since = now
            _logger.warning(
                "Spark source (%s): brokers are unavailable, retrying: %s", self._options.subscription, error
            )
        if now - self._unavailable_since > self._options.offset_retries * _UNAVAILABLE_SECONDS:
            raise error

    def _next_offset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any] | None:
        """Returns the end offset of the next batch, or None if there is nothing to read."""
        is_first = start == INITIAL
        begin = self._query_start() if is_first else from_spark(start)
        tps = self._partitions_to_read(begin)
        added = self._new_partitions(begin, tps)
        self._latest = self._available(begin, tps, is_first)
        end = self._apply_limits({**begin, **added}, self._latest, limit)
        if end is None or (not is_first and not added and all(end.get(tp) == begin[tp] for tp in begin)):
            return None
        self._last_batch_at = self._clock.monotonic()
        # The first batch runs even if it is empty, so that the checkpoint stores where the query started.
        return to_spark(end, {**begin, **added} if is_first else added)

    def _query_start(self) -> Offsets:
        if self._start is None:
            tps = self._refresh_partitions()
            self._start = self._cluster.start(tps if self._target is None else set(self._target))
        return self._start

    def _new_partitions(self, begin: Offsets, tps: set[TopicPartition]) -> Offsets:
        """Returns the partitions that the previous batch did not have, with their earliest offsets."""
        new_tps = tps - begin.keys()
        added = self._cluster.earliest(new_tps) if new_tps else {}
        for tp, offset in sorted(added.items()):
            if offset > 0:
                report_loss(self._options, f"{tp} is new, but its earliest offset is {offset}")
        return added

    def _available(self, begin: Offsets, tps: set[TopicPartition], is_first: bool) -> Offsets:
        """Returns the offsets up to which the partitions can be read now."""
        if self._target is not None:
            end = {tp: offset for tp, offset in self._target.items() if tp in tps}
            if is_first:
                # The start was resolved after the target, so it may be later.
                end = {tp: max(offset, begin.get(tp, offset)) for tp, offset in end.items()}
        else:
            end = self._cluster.latest(tps)
        shrunk = {tp for tp, offset in end.items() if offset < begin.get(tp, 0)}
        if shrunk:
            end = self._confirm_loss(begin, end, shrunk)
        return end

    def _confirm_loss(self, begin: Offsets, end: Offsets, shrunk: set[TopicPartition]) -> Offsets:
        """Handles partitions whose latest offset is before the offset already read. A new leader may briefly return
        such an offset, so this method requests it again. If the offset stays, records were lost."""
        for _ in range(self._options.offset_retries):
            self._clock.sleep(max(0.1, self._options.offset_retry_interval_ms / 1000))
            end = {**end, **self._cluster.latest(shrunk)}
            shrunk = {tp for tp in shrunk if end[tp] < begin[tp]}
            if not shrunk:
                return end
        for tp in sorted(shrunk):
            report_loss(self._options, f"{tp} ends at offset {end[tp]}, but was already read up to {begin[tp]}")
        return end

    def _partitions_to_read(self, begin: Offsets) -> set[TopicPartition]:
        """Returns the partitions that the query reads, from the cache if it is recent. Reports deleted partitions."""
        now = self._clock.monotonic()
        if self._target is not None:
            tps = set(self._target)
        elif self._partitions_at is not None and now - self._partitions_at < _PARTITIONS_MAX_AGE_SECONDS:
            tps = self._partitions
        else:
            tps = self._refresh_partitions(begin)
        for tp in sorted(begin.keys() - tps):
            report_loss(self._options, f"{tp} no longer exists; it was read up to offset {begin[tp]}")
        return tps

    def _refresh_partitions(self, expected: Offsets | None = None) -> set[TopicPartition]:
        self._partitions = self._cluster.partitions(expected or ())
        self._partitions_at = self._clock.monotonic()
        return self._partitions

    def _apply_limits(self, begin: Offsets, end: Offsets, limit: ReadLimit) -> Offsets | None:
        """Returns the end offsets of a batch within the limits, or None to wait for `minOffsetsPerTrigger`.
        `ReadAllAvailable` overrides all limits."""
        options = self._options
        if isinstance(limit, ReadAllAvailable):
            return end
        minimum, maximum = options.min_offsets_per_trigger, options.max_offsets_per_trigger
        if minimum is not None and self._target is None and self._last_batch_at is not None:
            waited_ms = (self._clock.monotonic() - self._last_batch_at) * 1000
            if backlog(begin, end) < minimum and waited_ms < options.max_trigger_delay_ms:
                return None
        return end if maximum is None else prorate(begin, end, maximum)

    # ---- tasks

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        options = self._options
        ranges = ranges_between(*self._bounds(start, end))
        return [
            RangePartition.of(offset_range)
            for offset_range in split_ranges(ranges, options.min_partitions, options.max_records_per_partition)
        ]

    def _bounds(self, start: dict[str, Any], end: dict[str, Any]) -> tuple[Offsets, Offsets]:
        """Returns the first offset of each partition in a batch, and the offset after its last one."""
        begin = {**from_spark(start), **start_of(end)}
        ends = from_spark(end)
        new_tps = ends.keys() - begin.keys()
        if new_tps:
            # Only checkpoints of Spark's own Kafka connector lack the start of new partitions.
            begin.update(self._until_available(lambda: self._cluster.earliest(new_tps)))
        if end != self._last_planned:
            ends = self._until_available(lambda: self._check_replay(begin, from_spark(end)))
        return begin, ends

    def _check_replay(self, begin: Offsets, ends: Offsets) -> Offsets:
        """Returns the end offsets of a replayed batch. Reports records that were lost since it was planned."""
        tps = self._refresh_partitions(ends)
        read_tps = {tp for tp in ends if ends[tp] > begin[tp]}
        for tp in sorted(read_tps - tps):
            report_loss(self._options, f"{tp} no longer exists; the replay needs offsets {begin[tp]} to {ends[tp] - 1}")
        latest = self._cluster.latest(read_tps & tps)
        for tp in sorted(latest):
            if latest[tp] < ends[tp]:
                report_loss(
                    self._options, f"{tp} ends at offset {latest[tp]}; the replay needs offsets up to {ends[tp] - 1}"
                )
        return {tp: min(ends[tp], latest[tp]) for tp in latest}

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_range(self._options, self._schema, partition)
