"""Reads a `Snapshot` of a cluster through the admin client. Changes nothing.

A part that cannot be read (a broker that is down, a missing permission, an API that an old broker does not have) is
noted in the snapshot, so that the other parts are still inspected.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from headrace.cli.cluster.transactions import hanging_in
from headrace.cli.common.tool import sentence
from headrace.client.admin.types import (
    ConfigResource,
    ListedOffset,
    LogDirDescription,
    OffsetSpec,
    TransactionDescription,
)
from headrace.common.clock import Clock
from headrace.common.errors import HeadraceError
from headrace.common.types import TopicPartition
from headrace.diagnosis.snapshot import (
    INTERNAL_TOPICS,
    Configs,
    GroupProgress,
    LatestTimestamp,
    Limits,
    OpenTransaction,
    PartitionProgress,
    Snapshot,
    number,
)

if TYPE_CHECKING:
    from headrace.client.admin.admin import Admin

T = TypeVar("T")

_BROKER_TIMEOUT_MS = 5_000
_TIMEOUT_MS = 30_000
_DEFAULT_TRANSACTION_TIMEOUT_MS = 900_000
_OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")


class Collector:
    """Reads one snapshot."""

    def __init__(self, admin: "Admin", clock: Clock, limits: Limits):
        self._admin = admin
        self._clock = clock
        self._limits = limits
        self._not_inspected: dict[str, str] = {}

    def collect(self) -> Snapshot:
        cluster = self._admin.describe_cluster()
        unreachable: dict[int, str] = {}
        versions: dict[int, Mapping[int, range]] = {}
        for broker in cluster.brokers:
            try:
                versions[broker.id] = self._admin.api_versions(broker.id, timeout_ms=_BROKER_TIMEOUT_MS)
            except HeadraceError as error:
                unreachable[broker.id] = sentence(error)
        described = self._admin.describe_topics(raise_errors=False)
        topics = {str(name): topic for name, topic in described.items() if topic.error is None}
        if described.errors:
            failed = next(iter(described.errors.values()))
            self._not_inspected[f"topics {', '.join(sorted(map(str, described.errors)))}"] = sentence(failed)
        snapshot = Snapshot(
            now_ms=self._clock.time_ms(),
            cluster=cluster,
            topics=topics,
            reassignments=self._read(
                "reassignments", lambda: self._admin.list_partition_reassignments(timeout_ms=_BROKER_TIMEOUT_MS)
            )
            or {},
            unreachable=unreachable,
            api_versions=versions,
        )
        usable = sorted(versions)
        readable = [tp for tp, partition in snapshot.partitions() if partition.leader in versions]
        leaders = {tp: partition.leader for tp, partition in snapshot.partitions()}
        started_ms = self._clock.time_ms()
        ends = self._read("end offsets", lambda: self._offsets(readable, OffsetSpec.LATEST)) or {}
        broker_configs = self._broker_configs(usable)
        topic_configs = self._topic_configs(sorted(topics))
        snapshot = replace(
            snapshot,
            broker_configs=broker_configs,
            topic_configs=topic_configs,
            log_dirs=self._log_dirs(usable),
            groups=self._read("groups", lambda: self._groups(usable, set(readable))) or [],
            unknown_transactions=self._read(
                "producers of partitions", lambda: self._unknown_transactions(readable, broker_configs)
            )
            or [],
            transactions=self._read("transactions", lambda: self._transactions(usable)) or [],
        )
        timestamps = (
            self._read("timestamps", lambda: self._timestamps(readable, leaders, ends, topic_configs, started_ms)) or []
        )
        return replace(snapshot, timestamps=timestamps, now_ms=self._clock.time_ms(), not_inspected=self._not_inspected)

    def _read(self, part: str, read: Callable[[], T]) -> T | None:
        """Returns None and notes the reason if a part cannot be read."""
        try:
            return read()
        except HeadraceError as error:
            self._not_inspected[part] = sentence(error)
            return None

    # ---- configs and disks

    def _broker_configs(self, broker_ids: Iterable[int]) -> dict[int, Configs]:
        found: dict[int, Configs] = {}
        for broker_id in broker_ids:
            resource = ConfigResource("broker", str(broker_id))
            configs = self._read(f"configs of broker {broker_id}", partial(self._configs, [resource])) or {}
            found.update({int(name): values for name, values in configs.items()})
        return found

    def _topic_configs(self, topics: Iterable[str]) -> dict[str, Configs]:
        resources = [ConfigResource("topic", name) for name in topics]
        return self._read("configs of topics", lambda: self._configs(resources)) or {}

    def _configs(self, resources: list[ConfigResource]) -> dict[str, Configs]:
        if not resources:
            return {}
        described = self._admin.describe_configs(resources, timeout_ms=_TIMEOUT_MS)
        return {
            resource.name: {key: entry.value for key, entry in description.entries.items()}
            for resource, description in described.items()
        }

    def _log_dirs(self, broker_ids: Iterable[int]) -> dict[int, list[LogDirDescription]]:
        found: dict[int, list[LogDirDescription]] = {}
        for broker_id in broker_ids:
            part = f"log directories of broker {broker_id}"
            read = partial(self._admin.describe_log_dirs, brokers=[broker_id], timeout_ms=_TIMEOUT_MS)
            found |= self._read(part, read) or {}
        return found

    # ---- offsets, groups, clocks

    def _offsets(self, tps: Iterable[TopicPartition], spec: int) -> dict[TopicPartition, ListedOffset]:
        """Returns the offsets of the partitions whose leader responds."""
        specs = dict.fromkeys(tps, spec)
        if not specs:
            return {}
        listed = self._admin.list_partition_offsets(specs, timeout_ms=_TIMEOUT_MS, raise_errors=False)
        return {tp: found for tp, found in listed.items() if found.error is None}

    def _groups(self, broker_ids: list[int], readable: set[TopicPartition]) -> list[GroupProgress]:
        listings = self._admin.list_groups(broker_ids, timeout_ms=_TIMEOUT_MS) if broker_ids else []
        states = {
            listing.group_id: listing.state
            for listing in listings
            if listing.protocol_type in ("", "consumer") and listing.type.lower() in ("", "classic", "consumer")
        }
        if not states:
            return []
        offsets = self._admin.list_group_offsets(list(states), timeout_ms=_TIMEOUT_MS, raise_errors=False)
        for group_id, failure in offsets.errors.items():
            self._not_inspected[f"offsets of group {group_id}"] = sentence(failure)
        committed = {
            group_id: {tp: commit.offset for tp, commit in found.offsets.items() if tp in readable}
            for group_id, found in offsets.items()
            if found.error is None
        }
        tps = sorted({tp for found in committed.values() for tp in found})
        starts = self._offsets(tps, OffsetSpec.EARLIEST)
        due = self._offsets(tps, self._clock.time_ms() - self._limits.max_lag_ms)
        ends = self._offsets(tps, OffsetSpec.LATEST)
        known = starts.keys() & due.keys() & ends.keys()
        return [
            GroupProgress(
                group_id,
                states[group_id],
                {
                    tp: PartitionProgress(
                        offset,
                        starts[tp].offset,
                        ends[tp].offset,
                        due[tp].offset if due[tp].offset >= 0 else ends[tp].offset,
                    )
                    for tp, offset in found.items()
                    if tp in known
                },
            )
            for group_id, found in committed.items()
        ]

    def _timestamps(
        self,
        tps: list[TopicPartition],
        leaders: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, ListedOffset],
        configs: Mapping[str, Configs],
        started_ms: int,
    ) -> list[LatestTimestamp]:
        latest = self._offsets(tps, OffsetSpec.MAX_TIMESTAMP)
        now_ms = self._clock.time_ms()
        return [
            LatestTimestamp(
                tp=tp,
                leader=leaders[tp],
                is_broker_time=tp.topic in INTERNAL_TOPICS
                or configs.get(tp.topic, {}).get("message.timestamp.type") == "LogAppendTime",
                read_from_ms=started_ms,
                read_until_ms=now_ms,
                end_before=ends[tp].offset,
                offset=found.offset,
                timestamp_ms=found.timestamp,
            )
            for tp, found in latest.items()
            if found.offset >= 0 and tp in ends
        ]

    # ---- transactions

    def _unknown_transactions(self, tps: list[TopicPartition], configs: Mapping[int, Configs]) -> list[OpenTransaction]:
        timeouts = [number(found.get("transaction.max.timeout.ms")) for found in configs.values()]
        longest_ms = max([timeout for timeout in timeouts if timeout], default=_DEFAULT_TRANSACTION_TIMEOUT_MS)
        found = hanging_in(self._admin, tps, self._clock.time_ms() - longest_ms)
        return [
            OpenTransaction(
                transaction.tp,
                transaction.producer.producer_id,
                transaction.producer.current_txn_start_offset,
                transaction.producer.last_timestamp,
            )
            for transaction in found
        ]

    def _transactions(self, broker_ids: list[int]) -> list[TransactionDescription]:
        listed = self._admin.list_transactions(broker_ids, state_filters=_OPEN_STATES, timeout_ms=_TIMEOUT_MS)
        if not listed:
            return []
        ids = [transaction.transactional_id for transaction in listed]
        described = self._admin.describe_transactions(ids, timeout_ms=_TIMEOUT_MS, raise_errors=False)
        return [transaction for transaction in described.values() if transaction.error is None]
