"""What the driver asks of the cluster: which partitions a query reads, and where they begin and end.

Runs in the driver's Python processes. Brokers that are away are waited for: each question is asked for
`default.api.timeout.ms`, and `fetchOffset.numRetries` times, before it counts as failed.

Invariant: what a user says about offsets names exactly the partitions that are read; anything else is refused.
"""

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from headrace.client.consumer.range_client import EARLIEST, LATEST, RangeClient
from headrace.common.clock import Clock, SystemClock
from headrace.common.errors import ConfigError, KafkaError, UnknownTopicOrPartitionError
from headrace.common.types import TopicPartition
from headrace.spark.clients import cached, settings_key
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

_BELIEVE_SECONDS = 5.0
"""Brokers that have just started may not know a topic yet: only after so long it counts as gone."""


class NoSuchTopicError(UnknownTopicOrPartitionError):
    """A topic that an option names does not exist, and will not by waiting."""

    retriable = False


class DataLossError(KafkaError):
    """Records that the query has not read are gone, and `failOnDataLoss` is true."""


def range_client(settings: Mapping[str, str]) -> RangeClient:
    """The client of this process for these settings."""
    return cached(settings_key("ranges", settings), lambda: RangeClient(settings))


class Cluster:
    """See the module."""

    def __init__(
        self,
        options: SourceOptions,
        client: RangeClient | None = None,
        clock: Clock | None = None,
        timeout_ms: float | None = None,
    ):
        """`timeout_ms` bounds each question, instead of `default.api.timeout.ms`."""
        self._options = options
        self._client = client
        self._timeout_ms = timeout_ms
        self._clock: Clock = clock or SystemClock()

    @property
    def client(self) -> RangeClient:
        return self._client or range_client(self._options.settings)

    def _retry(self, ask: Callable[[], T]) -> T:
        for attempt in range(1, self._options.offset_retries + 1):
            try:
                return ask()
            except KafkaError as error:
                if not error.retriable or attempt == self._options.offset_retries:
                    raise
                _logger.warning("the cluster does not answer: %s", error)
                self._clock.sleep(self._options.offset_retry_interval_ms / 1000)
        raise AssertionError("there is at least one attempt")

    def partitions(self, expected: Iterable[TopicPartition] = (), *, lenient: bool = False) -> set[TopicPartition]:
        """What the query reads at this moment. Where topics, or partitions that are `expected`, are missing, asks for a
        while before it believes that, and then raises, unless it is `lenient`."""
        deadline = self._clock.monotonic() + _BELIEVE_SECONDS
        wait = max(0.01, self._options.offset_retry_interval_ms / 1000)
        wanted = set(expected)
        while True:
            found, missing = self._retry(self._ask_partitions)
            if (not missing and wanted <= found) or self._clock.monotonic() >= deadline:
                break
            self._clock.sleep(wait)
            wait = min(1.0, 2 * wait)
        if missing and not lenient and (self._options.fail_on_data_loss or not wanted):
            raise NoSuchTopicError(
                f"there is no topic {', '.join(sorted(missing))}, which the option "
                f"'{'assign' if self._options.subscription.partitions else 'subscribe'}' names"
            )
        return found

    def _ask_partitions(self) -> tuple[set[TopicPartition], set[str]]:
        """Partitions, and topics that are named and do not exist."""
        chosen = self._options.subscription
        if chosen.pattern is not None:
            pattern = re.compile(chosen.pattern)
            names = {name for name in self.client.topics(self._timeout_ms) if pattern.fullmatch(name)}
        elif chosen.partitions:
            names = {tp.topic for tp in chosen.partitions}
        else:
            names = set(chosen.topics)
        parts = self.client.partitions(names, self._timeout_ms)
        found = {TopicPartition(name, number) for name, numbers in parts.items() for number in numbers}
        if chosen.partitions:
            # As in Spark's connector, partitions that a topic does not have yet are read when it has them.
            found &= chosen.partitions
        return found, set() if chosen.pattern is not None else names - parts.keys()

    def earliest(self, tps: Iterable[TopicPartition]) -> Offsets:
        return self.at_times(dict.fromkeys(tps, EARLIEST))

    def latest(self, tps: Iterable[TopicPartition]) -> Offsets:
        return self.at_times(dict.fromkeys(tps, LATEST))

    def at_times(self, timestamps: Mapping[TopicPartition, int]) -> Offsets:
        """The first offsets of records that are not older; -1 where all are."""
        return self._retry(lambda: self.client.offsets(timestamps, self._timeout_ms))

    def wait_for_records(self, positions: Mapping[TopicPartition, int], timeout_ms: float) -> bool:
        """Waits until there is something new behind the ends that were found last; False if time is up before."""
        return self.client.wait_for_records(positions, timeout_ms)

    # What users say

    def start(self, tps: Iterable[TopicPartition]) -> Offsets:
        """Where a query begins in each partition."""
        spec = self._options.starting
        found = self._resolve(spec, set(tps), "starting")
        unmatched = sorted(tp for tp, offset in found.items() if offset < 0)
        if unmatched and not self._options.latest_if_no_match:
            raise ConfigError(
                f"no record of {', '.join(map(str, unmatched))} is as new as the time to start at; to begin at the end "
                "of such partitions, set the option 'startingOffsetsByTimestampStrategy' to 'latest'"
            )
        return {**found, **self.latest(unmatched)} if unmatched else found

    def end(self, tps: Iterable[TopicPartition]) -> Offsets:
        """Where a batch read ends in each partition."""
        found = self._resolve(self._options.ending, set(tps), "ending")
        unmatched = [tp for tp, offset in found.items() if offset < 0]
        return {**found, **self.latest(unmatched)} if unmatched else found

    def _resolve(self, spec: OffsetSpec, tps: set[TopicPartition], side: str) -> Offsets:
        """-1 where no record is as new as a time."""
        if isinstance(spec, Earliest):
            return self.earliest(tps)
        if isinstance(spec, Latest):
            return self.latest(tps)
        if isinstance(spec, SpecificOffsets):
            _check_all_named(
                f"{side}Offsets", spec.offsets, tps, "Use -1 for the latest and -2 for the earliest offset"
            )
            given = dict(spec.offsets)
            given.update(self.earliest(tp for tp in tps if given[tp] == EARLIEST_OFFSET))
            given.update(self.latest(tp for tp in tps if given[tp] == LATEST_OFFSET))
            return given
        if isinstance(spec, SpecificTimestamps):
            _check_all_named(f"{side}OffsetsByTimestamp", spec.timestamps, tps, "A time belongs to each partition")
            return self.at_times(spec.timestamps)
        return self.at_times(dict.fromkeys(tps, spec.timestamp))


def _check_all_named(option: str, given: Mapping[TopicPartition, int], tps: set[TopicPartition], hint: str) -> None:
    if given.keys() != tps:
        raise ConfigError(
            f"the option '{option}' has to name all partitions that are read, and no others. {hint}. "
            f"Named: {_list(given)}. Read: {_list(tps)}"
        )


def _list(tps: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(tps))) or "none"
