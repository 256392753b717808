"""The group coordinator shard: the groups of one partition of `__consumer_offsets`, their offsets, and administration.

- Hard state is in the records: committed offsets, and each group as of its last Stable or Empty state. Only `replay`
  changes it, live and on load.
- Soft state is not written: joining members and pending requests. `membership` handles it.

Retention (KIP-211): an offset expires `offsets.retention.minutes` after

    its group became empty      if the group had members
    it was committed            if the group never had members (standalone consumers), or if a stable consumer group is
                                no longer subscribed to the topic

An empty group without offsets is deleted. An offset with a client-supplied retention time (OffsetCommit 2 to 4) expires
at that time.
"""

import logging
from collections.abc import Callable, Collection, Sequence

from headrace.common.errors import (
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    IllegalGenerationError,
    InvalidCommitOffsetSizeError,
    KafkaError,
    MessageSizeTooLargeError,
    NonEmptyGroupError,
    NotCoordinatorError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
    RecordListTooLargeError,
    UnknownMemberIdError,
    UnstableOffsetCommitError,
)
from headrace.common.ids import Random
from headrace.common.types import TopicPartition
from headrace.coordinator.group.classic_group import CONSUMER_PROTOCOL_TYPE, ClassicGroup, GroupState, Member
from headrace.coordinator.group.config import GroupConfig
from headrace.coordinator.group.membership import Membership
from headrace.coordinator.group.offsets import CommittedOffset, GroupOffsets
from headrace.coordinator.group.rebalances import EMPTY_RESULT
from headrace.coordinator.group.records import (
    OffsetCommitKey,
    OffsetCommitValue,
    decode_group_value,
    decode_key,
    decode_offset_value,
    group_record,
    offset_record,
)
from headrace.coordinator.result import CoordinatorRecord, CoordinatorResult, ProducerInfo
from headrace.coordinator.shard import ShardContext
from headrace.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from headrace.protocol.messages.list_groups import ListedGroup
from headrace.records import Record

_logger = logging.getLogger(__name__)

GROUP_TYPE = "classic"
_MAX_TOMBSTONES = 1_000
_MAX_TIMESTAMP_MS = 2**63 - 1

Offset = tuple[TopicPartition, int, int, str | None]
"""A partition, the offset to commit, its leader epoch and its metadata."""


class CommitRequest:
    """The offsets of an OffsetCommit or TxnOffsetCommit request, and the member that commits them."""

    __slots__ = ("expire_after_ms", "generation_id", "group_id", "group_instance_id", "member_id", "offsets")

    def __init__(
        self,
        group_id: str,
        generation_id: int,
        member_id: str,
        group_instance_id: str | None,
        offsets: Sequence[Offset],
        expire_after_ms: int = -1,
    ):
        self.group_id = group_id
        self.generation_id = generation_id
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.offsets = offsets
        """Tuples of partition, offset, leader epoch, metadata."""
        self.expire_after_ms = expire_after_ms


class GroupCoordinatorShard:
    """The groups and committed offsets of one partition of `__consumer_offsets`."""

    def __init__(self, context: ShardContext, config: Callable[[], GroupConfig], random: Random):
        self._context = context
        self._config = config
        self.groups: dict[str, ClassicGroup] = {}
        self._offsets: dict[str, GroupOffsets] = {}
        self._open_transactions: dict[int, set[str]] = {}
        """Producer id → groups with offsets in its open transaction."""
        self._replayed = 0
        """The number of replayed records. It orders commits."""
        self.members = Membership(context, self.groups, config, random)

    # ---- replaying

    def replay(self, record: Record, producer: ProducerInfo | None) -> None:
        self._replayed += 1
        key = decode_key(record.key or b"")
        if key is None:
            _logger.debug("Skipping a record of an unknown type in __consumer_offsets: key %r", record.key)
        elif isinstance(key, OffsetCommitKey):
            self._replay_offset(key, record.value, producer)
        else:
            self._replay_group(key.group, record.value)

    def _replay_offset(self, key: OffsetCommitKey, data: bytes | None, producer: ProducerInfo | None) -> None:
        offsets = self._offsets.get(key.group)
        if data is None:
            if offsets is not None:
                offsets.remove(key.tp)
                if not offsets:
                    del self._offsets[key.group]
            return
        if offsets is None:
            offsets = self._offsets[key.group] = GroupOffsets()
        if key.group not in self.groups:
            self.groups[key.group] = ClassicGroup(key.group, self._context.now_ms())
        committed = CommittedOffset.of(decode_offset_value(data), self._replayed)
        if producer is None:
            offsets.commit(key.tp, committed)
        else:
            offsets.add_pending(producer.producer_id, key.tp, committed)
            self._open_transactions.setdefault(producer.producer_id, set()).add(key.group)

    def _replay_group(self, group_id: str, data: bytes | None) -> None:
        if data is None:
            group = self.groups.pop(group_id, None)
            if group is not None:
                self.members.remove_group(group, UnknownMemberIdError)
            return
        value = decode_group_value(data)
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id, self._context.now_ms())
        group.install(value)

    def replay_end(self, producer: ProducerInfo, committed: bool) -> None:
        for group_id in self._open_transactions.pop(producer.producer_id, ()):
            offsets = self._offsets.get(group_id)
            if offsets is not None:
                offsets.end_transaction(producer.producer_id, committed)
                if not offsets:
                    del self._offsets[group_id]

    def on_loaded(self) -> None:
        for group_id in self._offsets:
            if group_id not in self.groups:
                self.groups[group_id] = ClassicGroup(group_id, self._context.now_ms())
        for group in self.groups.values():
            self.members.on_group_loaded(group)
        self._schedule_expiry()

    def on_unloaded(self) -> None:
        for group in self.groups.values():
            self.members.remove_group(group, NotCoordinatorError)

    # ---- committing

    def commit(self, request: CommitRequest) -> CoordinatorResult[dict[TopicPartition, int]]:
        """Commits all valid offsets, or none. The response has an error code for each partition."""
        group, member = self._check_commit(request)
        if member is not None and group is not None:
            self.members.record_commit(group, member)
        return self._write_offsets(request, None)

    def commit_in_transaction(
        self, request: CommitRequest, producer: ProducerInfo
    ) -> CoordinatorResult[dict[TopicPartition, int]]:
        """Commits offsets that take effect when the producer's transaction commits (KIP-98, KIP-447 for members)."""
        self._check_commit(request, transactional=True)
        return self._write_offsets(request, producer)

    def _check_commit(
        self, request: CommitRequest, transactional: bool = False
    ) -> tuple[ClassicGroup | None, Member | None]:
        group = self.groups.get(request.group_id)
        if group is None:
            if request.generation_id >= 0:
                error = IllegalGenerationError if transactional else GroupIdNotFoundError
                raise error(f"Group {request.group_id} does not exist.")
            return None, None  # the first offset creates the group
        if group.state is GroupState.DEAD:
            raise CoordinatorNotAvailableError(f"Group {group.group_id} was deleted or moved to another coordinator.")
        if request.generation_id < 0 and group.state is GroupState.EMPTY:
            return group, None  # a standalone consumer
        member = None
        names_member = request.generation_id >= 0 or request.member_id or request.group_instance_id is not None
        if names_member:
            member = group.check_member(request.member_id, request.group_instance_id)
            group.check_generation(request.generation_id)
        elif not transactional:
            raise UnknownMemberIdError(
                f"Group {group.group_id} has members; a commit must name a member id and generation."
            )
        if not transactional and group.state is GroupState.COMPLETING_REBALANCE:
            raise RebalanceInProgressError(
                f"Group {group.group_id} is rebalancing: waiting for the leader's assignment."
            )
        return group, member

    def _write_offsets(
        self, request: CommitRequest, producer: ProducerInfo | None
    ) -> CoordinatorResult[dict[TopicPartition, int]]:
        now_ms = self._context.now_ms()
        expire_ms = min(now_ms + request.expire_after_ms, _MAX_TIMESTAMP_MS) if request.expire_after_ms >= 0 else -1
        max_length = self._config().offset_metadata_max_bytes
        records: list[CoordinatorRecord] = []
        codes: dict[TopicPartition, int] = {}
        for tp, offset, leader_epoch, metadata in request.offsets:
            metadata = metadata or ""
            if _java_length(metadata) > max_length:
                codes[tp] = OffsetMetadataTooLargeError.code
                continue
            codes[tp] = 0
            value = OffsetCommitValue(
                offset=offset,
                leader_epoch=leader_epoch,
                metadata=metadata,
                commit_timestamp_ms=now_ms,
                expire_timestamp_ms=expire_ms,
            )
            records.append(offset_record(request.group_id, tp, value))
        return CoordinatorResult(records, codes, producer=producer)

    # ---- fetching offsets

    def offsets_of(self, group_id: str) -> GroupOffsets:
        return self._offsets.get(group_id) or GroupOffsets()

    def fetch_offset(
        self, offsets: GroupOffsets, topic: str, partition: int, require_stable: bool
    ) -> tuple[CommittedOffset | None, int]:
        """Returns the committed offset and an error code."""
        if require_stable and offsets.has_pending(topic, partition):
            return None, UnstableOffsetCommitError.code
        return offsets.get(topic, partition), 0

    # ---- administration

    def describe(self, group_id: str) -> DescribedGroup:
        group = self.groups.get(group_id)
        if group is None or group.state is GroupState.DEAD:
            raise GroupIdNotFoundError(f"Group {group_id} not found.")
        stable = group.state is GroupState.STABLE
        protocol = (group.protocol or "") if stable else ""
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=protocol,
            members=[
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata(protocol) if stable else b"",
                    member_assignment=member.assignment,
                )
                for member in group.members.values()
            ],
        )

    def list_groups(self, states: Collection[str], types: Collection[str]) -> list[ListedGroup]:
        """Returns the groups with these states and types (in lower case). An empty filter matches everything."""
        if types and GROUP_TYPE not in types:
            return []
        return [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=GROUP_TYPE,
            )
            for group in self.groups.values()
            if not states or group.state.value.lower() in states
        ]

    def delete_group(self, group_id: str) -> CoordinatorResult[None]:
        group = self.groups.get(group_id)
        if group is None or group.state is GroupState.DEAD:
            raise GroupIdNotFoundError(f"Group {group_id} not found.")
        if group.state is not GroupState.EMPTY:
            raise NonEmptyGroupError(f"Group {group_id} is not empty: it has active members.")
        tps = sorted(self.offsets_of(group_id).all_partitions())
        return CoordinatorResult(
            [*(offset_record(group_id, tp, None) for tp in tps), group_record(group_id, None)], None
        )

    def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> CoordinatorResult[dict[TopicPartition, int]]:
        """Deletes offsets, except of topics that members are subscribed to."""
        group = self.groups.get(group_id)
        if group is None or group.state is GroupState.DEAD:
            raise GroupIdNotFoundError(f"Group {group_id} not found.")
        if group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise NonEmptyGroupError(
                f"Group {group_id} is not empty and is not a consumer group: its subscriptions are unknown."
            )
        committed = self.offsets_of(group_id).all_partitions()
        records: list[CoordinatorRecord] = []
        codes: dict[TopicPartition, int] = {}
        for tp in partitions:
            if group.state is not GroupState.EMPTY and group.is_subscribed(tp.topic):
                codes[tp] = GroupSubscribedToTopicError.code
                continue
            codes[tp] = 0
            if tp in committed:
                records.append(offset_record(group_id, tp, None))
        return CoordinatorResult(records, codes)

    def delete_offsets_of_topics(self, topics: set[str]) -> CoordinatorResult[bool]:
        """Deletes the offsets of deleted topics, at most 1000 at a time. The response is True if none are left."""
        committed = [
            (group_id, tp)
            for group_id, offsets in self._offsets.items()
            for tp in sorted(offsets.all_partitions())
            if tp.topic in topics
        ]
        records = [offset_record(group_id, tp, None) for group_id, tp in committed[:_MAX_TOMBSTONES]]
        return CoordinatorResult(records, len(records) == len(committed))

    # ---- retention

    def _schedule_expiry(self) -> None:
        self._context.schedule("expiry", self._config().offsets_retention_check_interval_ms, self._run_expiry)

    def _run_expiry(self) -> CoordinatorResult[None]:
        self._schedule_expiry()
        return self.expire()

    def expire(self) -> CoordinatorResult[None]:
        """Deletes expired offsets and empty groups, at most 1000 records at a time. Schedules itself for the rest."""
        now_ms = self._context.now_ms()
        records: list[CoordinatorRecord] = []
        for group in list(self.groups.values()):
            remaining = _MAX_TOMBSTONES - len(records)
            if remaining <= 0:
                break
            offsets = self.offsets_of(group.group_id)
            expired = self._expired(group, offsets, now_ms)
            records += [offset_record(group.group_id, tp, None) for tp in expired[:remaining]]
            if len(expired) <= remaining and self._is_idle(group) and len(expired) == len(offsets.all_partitions()):
                if group.is_stored or expired:
                    records.append(group_record(group.group_id, None))
                else:
                    self.members.remove_group(
                        group, UnknownMemberIdError
                    )  # never written: only a member id was requested
                    del self.groups[group.group_id]
        if not records:
            return EMPTY_RESULT
        _logger.info(
            "Partition %d of __consumer_offsets: removing %d expired offsets and groups",
            self._context.partition,
            len(records),
        )
        return CoordinatorResult(
            records, None, on_completion=self._expire_more if len(records) >= _MAX_TOMBSTONES else None
        )

    def _expire_more(self, error: KafkaError | None) -> None:
        if error is None:
            self._context.schedule("expiry", 0, self._run_expiry)

    @staticmethod
    def _is_idle(group: ClassicGroup) -> bool:
        return group.state is GroupState.EMPTY and not group.pending_joins

    def _expired(self, group: ClassicGroup, offsets: GroupOffsets, now_ms: int) -> list[TopicPartition]:
        retention_ms = self._config().offsets_retention_ms
        pending = offsets.pending_partitions()
        retention_start_ms: Callable[[CommittedOffset], int]
        if group.protocol_type is not None and group.state is GroupState.EMPTY:
            # Old records have no state timestamp.
            def retention_start_ms(offset: CommittedOffset) -> int:
                return group.state_timestamp_ms if group.state_timestamp_ms >= 0 else offset.commit_timestamp_ms
        elif group.protocol_type is None or (
            group.protocol_type == CONSUMER_PROTOCOL_TYPE and group.state is GroupState.STABLE
        ):

            def retention_start_ms(offset: CommittedOffset) -> int:
                return offset.commit_timestamp_ms
        else:
            return []
        is_stable = group.state is GroupState.STABLE
        return [
            tp
            for tp, offset in offsets
            if tp not in pending
            and not (is_stable and group.is_subscribed(tp.topic))
            and offset.is_expired(retention_start_ms(offset), now_ms, retention_ms)
        ]


def _java_length(text: str) -> int:
    """Returns the length in UTF-16 code units: Kafka compares that with `offset.metadata.max.bytes`."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def commit_error(error: KafkaError) -> int:
    """Returns the error code of a commit that could not be written."""
    if isinstance(error, MessageSizeTooLargeError | RecordListTooLargeError):
        return InvalidCommitOffsetSizeError.code
    return error.code
