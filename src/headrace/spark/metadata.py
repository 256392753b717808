"""The driver's view of the cluster: the partitions that a query reads, and their first and last offsets.

Runs in the driver's Python processes. Waits for unavailable brokers: each request is tried for
`default.api.timeout.ms`, and `fetchOffset.numRetries` times, before it fails.

Invariant: offsets that a user gives must name exactly the partitions that are read.
"""

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from headrace.client.consumer.range_client import EARLIEST, LATEST, RangeClient
from headrace.common.clock import Clock, SystemClock
from headrace.common.errors import ConfigError, KafkaError, UnknownTopicOrPartitionError
from headrace.common.types import TopicPartition
from headrace.spark.clients import cached, config_key
from headrace.spark.offsets import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    Earliest,
    Latest,
    Offsets,
    OffsetSpec,
    SpecificOffsets,
    SpecificTimestamps,
)
from headrace.spark.options import SourceOptions

__all__ = ["Cluster", "DataLossError", "NoSuchTopicError", "range_client"]

_logger = logging.getLogger(__name__)
T = TypeVar("T")

_MISSING_TOPIC_SECONDS = 5.0
"""A topic counts as missing only after this time, because brokers that have just started may not know it yet."""


class NoSuchTopicError(UnknownTopicOrPartitionError):
    """A topic that an option names does not exist. Retrying does not help."""

    retriable = False


class DataLossError(KafkaError):
    """Records were deleted before the query read them, and `failOnDataLoss` is true."""


def range_client(config: Mapping[str, str]) -> RangeClient:
    """Returns the client of this process for these configs."""
    return cached(config_key("ranges", config), lambda: RangeClient(config))


class Cluster:
    """Requests partitions and offsets for the subscription of a source, with retries."""

    def __init__(
        self,
        options: SourceOptions,
        client: RangeClient | None = None,
        clock: Clock | None = None,
        timeout_ms: float | None = None,
    ):
        """Creates a view of the cluster. `timeout_ms` limits each request, instead of `default.api.timeout.ms`."""
        self._options = options
        self._client = client
        self._timeout_ms = timeout_ms
        self._clock: Clock = clock or SystemClock()

    @property
    def client(self) -> RangeClient:
        return self._client or range_client(self._options.config)

    def _retry(self, request: Callable[[], T]) -> T:
        for attempt in range(1, self._options.offset_retries + 1):
            try:
                return request()
            except KafkaError as error:
                if not error.retriable or attempt == self._options.offset_retries:
                    raise
                _logger.warning(
                    "Spark source (%s): request to the cluster failed, retrying: %s", self._options.subscription, error
                )
                self._clock.sleep(self._options.offset_retry_interval_ms / 1000)
        raise AssertionError("offset_retries is at least 1")

    def partitions(
        self, expected: Iterable[TopicPartition] = (), *, allow_missing: bool = False
    ) -> set[TopicPartition]:
        """Returns the partitions that the query reads now. Retries for some seconds while a topic, or a partition in
        `expected`, is missing. Then raises `NoSuchTopicError` for missing topics, unless `allow_missing`."""
        deadline = self._clock.monotonic() + _MISSING_TOPIC_SECONDS
        wait = max(0.01, self._options.offset_retry_interval_ms / 1000)
        required = set(expected)
        while True:
            tps, missing = self._retry(self._request_partitions)
            if (not missing and required <= tps) or self._clock.monotonic() >= deadline:
                break
            self._clock.sleep(wait)
            wait = min(1.0, 2 * wait)
        if missing and not allow_missing and (self._options.fail_on_data_loss or not required):
            raise NoSuchTopicError(
                f"topic {', '.join(sorted(missing))} does not exist; the option "
                f"'{'assign' if self._options.subscription.partitions else 'subscribe'}' names it"
            )
        return tps

    def _request_partitions(self) -> tuple[set[TopicPartition], set[str]]:
        """Returns the partitions, and the topics that an option names but that do not exist."""
        subscription = self._options.subscription
        if subscription.pattern is not None:
            pattern = re.compile(subscription.pattern)
            names = {name for name in self.client.topics(self._timeout_ms) if pattern.fullmatch(name)}
        elif subscription.partitions:
            names = {tp.topic for tp in subscription.partitions}
        else:
            names = set(subscription.topics)
        parts = self.client.partitions(names, self._timeout_ms)
        tps = {TopicPartition(name, number) for name, numbers in parts.items() for number in numbers}
        if subscription.partitions:
            # As in Spark's connector, partitions that do not exist yet are read once they exist.
            tps &= subscription.partitions
        return tps, set() if subscription.pattern is not None else names - parts.keys()

    def earliest(self, tps: Iterable[TopicPartition]) -> Offsets:
        return self.at_times(dict.fromkeys(tps, EARLIEST))

    def latest(self, tps: Iterable[TopicPartition]) -> Offsets:
        return self.at_times(dict.fromkeys(tps, LATEST))

    def at_times(self, timestamps: Mapping[TopicPartition, int]) -> Offsets:
        """Returns the offset of the first record at or after each timestamp, or -1 if all records are older."""
        return self._retry(lambda: self.client.offsets(timestamps, self._timeout_ms))

    def wait_for_records(self, positions: Mapping[TopicPartition, int], timeout_ms: float) -> bool:
        """Waits for records after these end offsets. Returns False if the time is up first."""
        return self.client.wait_for_records(positions, timeout_ms)

    # ---- starting and ending offsets

    def start(self, tps: Iterable[TopicPartition]) -> Offsets:
        """Returns the offset at which a query begins in each partition."""
        spec = self._options.starting
        offsets = self._resolve(spec, set(tps), "starting")
        unmatched = sorted(tp for tp, offset in offsets.items() if offset < 0)
        if unmatched and not self._options.latest_if_no_match:
            raise ConfigError(
                f"{', '.join(map(str, unmatched))} has no record at or after the starting timestamp; to start such "
                "partitions at their end, set the option 'startingOffsetsByTimestampStrategy' to 'latest'"
            )
        return {**offsets, **self.latest(unmatched)} if unmatched else offsets

    def end(self, tps: Iterable[TopicPartition]) -> Offsets:
        """Returns the offset at which a batch read ends in each partition."""
        offsets = self._resolve(self._options.ending, set(tps), "ending")
        unmatched = [tp for tp, offset in offsets.items() if offset < 0]
        return {**offsets, **self.latest(unmatched)} if unmatched else offsets

    def _resolve(self, spec: OffsetSpec, tps: set[TopicPartition], side: str) -> Offsets:
        """Returns the offset of each partition, or -1 if it has no record at or after its timestamp."""
        if isinstance(spec, Earliest):
            return self.earliest(tps)
        if isinstance(spec, Latest):
            return self.latest(tps)
        if isinstance(spec, SpecificOffsets):
            _check_all_named(
                f"{side}Offsets", spec.offsets, tps, "Use -1 for the latest and -2 for the earliest offset"
            )
            offsets = dict(spec.offsets)
            offsets.update(self.earliest(tp for tp in tps if offsets[tp] == EARLIEST_OFFSET))
            offsets.update(self.latest(tp for tp in tps if offsets[tp] == LATEST_OFFSET))
            return offsets
        if isinstance(spec, SpecificTimestamps):
            _check_all_named(f"{side}OffsetsByTimestamp", spec.timestamps, tps, "Give a timestamp for every partition")
            return self.at_times(spec.timestamps)
        return self.at_times(dict.fromkeys(tps, spec.timestamp))


def _check_all_named(
    option: str, option_values: Mapping[TopicPartition, int], tps: set[TopicPartition], hint: str
) -> None:
    if option_values.keys() != tps:
        raise ConfigError(
            f"the option '{option}' must name exactly the partitions that are read. {hint}. "
            f"Named: {_list(option_values)}. Read: {_list(tps)}"
        )


def _list(tps: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(tps))) or "none"
