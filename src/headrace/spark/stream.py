"""The stream: what each micro-batch reads, from offset to offset.

One reader lives in a Python process beside the driver for as long as the query runs, and is asked for `latestOffset`,
`partitions` and so on; another is pickled to tasks, which only `read`. So a task gets everything in its partition.

    latestOffset(start)   partitions -> their ends -> limits (min, max, delay) -> an offset, or `start`: nothing new
    partitions(start,end) ranges between two offsets, cut into tasks; the same for a replay

Invariants: the same offsets make the same tasks, also after a restart, and also for the first batch, whose beginning
Spark does not keep (`offsets`); a broker that is away ends the query only after a long while; partitions that are new
are read from their earliest offset.
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
from headrace.spark.schema import wanted_columns

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["StreamReader"]

_logger = logging.getLogger(__name__)
T = TypeVar("T")

_LONG_POLL_SECONDS = 0.1
"""Without news, `latestOffset` waits so long for some. Spark would ask again after 10 ms; on the other hand a query can
be stopped only between two questions."""
_STEP_SECONDS = 0.02
_PARTITIONS_SECONDS = 1.0
"""How old may be what is known of topics and their partitions."""
_ASK_MS = 5_000
"""How long one question may take while brokers may be away, since Spark cannot stop a query meanwhile."""

_PATIENCE_SECONDS = 60.0
"""Times `fetchOffset.numRetries`: how long brokers may be away before the query ends."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """See the module."""

    def __init__(self, options: dict[str, str], schema: StructType, cluster: Cluster | None = None):
        self._options = SourceOptions.parse(options, streaming=True)
        self._schema = schema
        wanted_columns(schema)
        self._clock: Clock = SystemClock()
        self._cluster = cluster or Cluster(self._options, clock=self._clock, timeout_ms=_ASK_MS)
        self._start: Offsets | None = None
        """Where the query begins, once that was found out, if no batch has been logged yet."""
        self._partitions: set[TopicPartition] = set()
        self._partitions_at: float | None = None
        self._target: Offsets | None = None
        """Where a query that reads what is there ends."""
        self._latest: Offsets = {}
        self._planned: Mapping[str, Any] | None = None
        """The last offset that this reader gave out."""
        self._last_batch_at: float | None = None
        self._away_since: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_schema": self._schema}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        quick_ack()

    # Offsets

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return dict(INITIAL)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Any limit that is set; `latestOffset` looks at all of them."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        # A topic that is missing may be one that was read before, or a mistake: that is told with the first offsets.
        lenient = not self._options.fail_on_data_loss
        self._target = self._patiently(lambda: self._cluster.latest(self._cluster.partitions(lenient=lenient)))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        return to_spark(self._latest) if self._latest else None

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        deadline = self._clock.monotonic() + _LONG_POLL_SECONDS
        while True:
            try:
                offset = self._next_offset(start, limit)
            except KafkaError as error:
                self._away(error)
                is_over = self._target is None
            else:
                self._away_since = None
                if offset is not None:
                    self._planned = offset
                    return offset
                is_over = True
            left = deadline - self._clock.monotonic()
            if is_over and (self._target is not None or left <= 0):
                return start
            if self._away_since is not None or not self._latest:
                self._clock.sleep(_STEP_SECONDS)
            elif not self._cluster.wait_for_records(self._latest, 1000 * left):
                return start

    def _patiently(self, ask: Callable[[], T]) -> T:
        """What is asked of brokers, as soon as they answer."""
        while True:
            try:
                answer = ask()
            except KafkaError as error:
                self._away(error)
                self._clock.sleep(_STEP_SECONDS)
            else:
                self._away_since = None
                return answer

    def _away(self, error: KafkaError) -> None:
        """A question failed. Raises the error if it is one that stays, or has stayed for long."""
        if not error.retriable:
            raise error
        now = self._clock.monotonic()
        if self._away_since is None:
            self._away_since = now
            _logger.warning("the brokers do not answer, they are asked again: %s", error)
        if now - self._away_since > self._options.offset_retries * _PATIENCE_SECONDS:
            raise error

    def _next_offset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any] | None:
        """Where the next batch ends; None if there is nothing for one."""
        is_first = start == INITIAL
        begin = self._first_offsets() if is_first else from_spark(start)
        tps = self._known_partitions(begin)
        added = self._added(begin, tps)
        end = self._ends(begin, tps, is_first)
        self._latest = end
        chosen = self._limited({**begin, **added}, end, limit)
        if chosen is None or (not is_first and not added and all(chosen.get(tp) == begin[tp] for tp in begin)):
            return None
        self._last_batch_at = self._clock.monotonic()
        # The first batch is run even if it is empty: so it is logged where the query begins.
        return to_spark(chosen, {**begin, **added} if is_first else added)

    def _first_offsets(self) -> Offsets:
        if self._start is None:
            tps = self._current_partitions()
            self._start = self._cluster.start(tps if self._target is None else set(self._target))
        return self._start

    def _added(self, begin: Offsets, tps: set[TopicPartition]) -> Offsets:
        """Partitions that are new, and where they begin."""
        new = tps - begin.keys()
        added = self._cluster.earliest(new) if new else {}
        for tp, offset in sorted(added.items()):
            if offset > 0:
                report_loss(self._options, f"{tp} is new and begins at offset {offset} already")
        return added

    def _ends(self, begin: Offsets, tps: set[TopicPartition], is_first: bool) -> Offsets:
        """How far partitions can be read now."""
        if self._target is not None:
            end = {tp: offset for tp, offset in self._target.items() if tp in tps}
            if is_first:
                # The query begins at a moment after the target was taken.
                end = {tp: max(offset, begin.get(tp, offset)) for tp, offset in end.items()}
        else:
            end = self._cluster.latest(tps)
        back = {tp for tp, offset in end.items() if offset < begin.get(tp, 0)}
        if back:
            end = self._confirm_loss(begin, end, back)
        return end

    def _confirm_loss(self, begin: Offsets, end: Offsets, back: set[TopicPartition]) -> Offsets:
        """Some partitions end before the offset that was reached. A leader that has just changed may tell so for a
        moment; what it says again and again is true."""
        for _ in range(self._options.offset_retries):
            self._clock.sleep(max(0.1, self._options.offset_retry_interval_ms / 1000))
            end = {**end, **self._cluster.latest(back)}
            back = {tp for tp in back if end[tp] < begin[tp]}
            if not back:
                return end
        for tp in sorted(back):
            report_loss(self._options, f"{tp} ends at offset {end[tp]}, but was read up to {begin[tp]} before")
        return end

    def _known_partitions(self, begin: Offsets) -> set[TopicPartition]:
        """The partitions that the query reads: as they are now, or were a moment ago."""
        now = self._clock.monotonic()
        if self._target is not None:
            tps = set(self._target)
        elif self._partitions_at is not None and now - self._partitions_at < _PARTITIONS_SECONDS:
            tps = self._partitions
        else:
            tps = self._current_partitions(begin)
        for tp in sorted(begin.keys() - tps):
            report_loss(self._options, f"{tp} is gone, which was read up to offset {begin[tp]}")
        return tps

    def _current_partitions(self, expected: Offsets | None = None) -> set[TopicPartition]:
        self._partitions = self._cluster.partitions(expected or ())
        self._partitions_at = self._clock.monotonic()
        return self._partitions

    def _limited(self, begin: Offsets, end: Offsets, limit: ReadLimit) -> Offsets | None:
        """As much as the limits allow; None if there is too little yet. Spark may want all of it, whatever they say."""
        options = self._options
        if isinstance(limit, ReadAllAvailable):
            return end
        low, high = options.min_offsets_per_trigger, options.max_offsets_per_trigger
        if low is not None and self._target is None and self._last_batch_at is not None:
            waited_ms = (self._clock.monotonic() - self._last_batch_at) * 1000
            if backlog(begin, end) < low and waited_ms < options.max_trigger_delay_ms:
                return None
        return end if high is None else prorate(begin, end, high)

    # Tasks

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begin = {**from_spark(start), **start_of(end)}
        ends = from_spark(end)
        new = ends.keys() - begin.keys()
        if new:
            # Only in checkpoints of Spark's own connector.
            begin.update(self._patiently(lambda: self._cluster.earliest(new)))
        if end != self._planned:
            ends = self._patiently(lambda: self._replayable(begin, from_spark(end)))
        ranges = ranges_between(begin, ends)
        options = self._options
        return [
            RangePartition.of(each)
            for each in split_ranges(ranges, options.min_partitions, options.max_records_per_partition)
        ]

    def _replayable(self, begin: Offsets, ends: Offsets) -> Offsets:
        """A batch from before a restart is read again: what it needs may be gone."""
        tps = self._current_partitions(ends)
        wanted = {tp for tp in ends if ends[tp] > begin[tp]}
        for tp in sorted(wanted - tps):
            report_loss(self._options, f"{tp} is gone, of which offsets from {begin[tp]} to {ends[tp] - 1} are needed")
        latest = self._cluster.latest(wanted & tps)
        for tp in sorted(latest):
            if latest[tp] < ends[tp]:
                report_loss(self._options, f"{tp} ends at offset {latest[tp]}, but is needed up to {ends[tp] - 1}")
        return {tp: min(ends[tp], latest[tp]) for tp in latest}

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_range(self._options, self._schema, partition)
