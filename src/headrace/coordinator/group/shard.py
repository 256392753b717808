"""The groups of one partition of `__consumer_offsets`: what its records make of them, offsets, and administration.

Durable is what the records say: committed offsets, and each group as it was when last Stable or Empty. `replay` alone
changes that, live and on load. Members that join and requests that wait are not written; see `membership`.

Retention (KIP-211): an offset goes when `offsets.retention.minutes` have passed since

    its group became empty                     a group that had members
    it was committed                           a group that never had any (offsets committed by hand), or a topic that a
                                               stable consumer group does not read any more

and a group that is empty and has no offsets left goes with them. An offset that a client gave a time of its own
(OffsetCommit 2 to 4) goes by that.
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
_TOMBSTONES_AT_ONCE = 1_000
_LATEST_MS = 2**63 - 1


class CommitRequest:
    """What OffsetCommit and TxnOffsetCommit ask for."""

    __slots__ = ("expire_after_ms", "generation_id", "group_id", "group_instance_id", "member_id", "offsets")

    def __init__(
        self,
        group_id: str,
        generation_id: int,
        member_id: str,
        group_instance_id: str | None,
        offsets: Sequence[tuple[TopicPartition, int, int, str | None]],
        expire_after_ms: int = -1,
    ):
        self.group_id = group_id
        self.generation_id = generation_id
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.offsets = offsets
        """Partition, offset, leader epoch, metadata."""
        self.expire_after_ms = expire_after_ms


class GroupCoordinatorShard:
    def __init__(self, context: ShardContext, config: Callable[[], GroupConfig], random: Random):
        self._context = context
        self._config = config
        self.groups: dict[str, ClassicGroup] = {}
        self._offsets: dict[str, GroupOffsets] = {}
        self._open: dict[int, set[str]] = {}
        """Producer id → groups that have offsets in its open transaction."""
        self._written = 0
        self.members = Membership(context, self.groups, config, random)

    # ---- replaying

    def replay(self, record: Record, producer: ProducerInfo | None) -> None:
        self._written += 1
        key = decode_key(record.key or b"")
        if key is None:
            _logger.debug("a record of a kind that is not known: %r", record.key)
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
        committed = CommittedOffset.of(decode_offset_value(data), self._written)
        if producer is None:
            offsets.commit(key.tp, committed)
        else:
            offsets.add_pending(producer.producer_id, key.tp, committed)
            self._open.setdefault(producer.producer_id, set()).add(key.group)

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
        for group_id in self._open.pop(producer.producer_id, ()):
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
            self.members.loaded(group)
        self._schedule_expiry()

    def on_unloaded(self) -> None:
        for group in self.groups.values():
            self.members.remove_group(group, NotCoordinatorError)

    # ---- committing

    def commit(self, request: CommitRequest) -> CoordinatorResult[dict[TopicPartition, int]]:
        """Commits offsets, all or none of those that can be taken; the reply has an error code for each."""
        group, member = self._check_commit(request)
        if member is not None and group is not None:
            self.members.note_commit(group, member)
        return self._write_offsets(request, None)

    def commit_in_transaction(
        self, request: CommitRequest, producer: ProducerInfo
    ) -> CoordinatorResult[dict[TopicPartition, int]]:
        """Commits offsets that count when the producer's transaction is committed (KIP-98, and KIP-447 for members)."""
        self._check_commit(request, transactional=True)
        return self._write_offsets(request, producer)

    def _check_commit(
        self, request: CommitRequest, transactional: bool = False
    ) -> tuple[ClassicGroup | None, Member | None]:
        group = self.groups.get(request.group_id)
        if group is None:
            if request.generation_id >= 0:
                error = IllegalGenerationError if transactional else GroupIdNotFoundError
                raise error(f"there is no group {request.group_id!r}")
            return None, None  # made by its first offset
        if group.state is GroupState.DEAD:
            raise CoordinatorNotAvailableError(f"group {group.group_id} is gone")
        if request.generation_id < 0 and group.state is GroupState.EMPTY:
            return group, None  # somebody who assigns partitions by hand
        member = None
        named = request.generation_id >= 0 or request.member_id or request.group_instance_id is not None
        if named:
            member = group.check_member(request.member_id, request.group_instance_id)
            group.check_generation(request.generation_id)
        elif not transactional:
            raise UnknownMemberIdError(f"group {group.group_id} has members, and the commit is of none of them")
        if not transactional and group.state is GroupState.COMPLETING_REBALANCE:
            raise RebalanceInProgressError(f"group {group.group_id} waits for its assignment")
        return group, member

    def _write_offsets(
        self, request: CommitRequest, producer: ProducerInfo | None
    ) -> CoordinatorResult[dict[TopicPartition, int]]:
        now_ms = self._context.now_ms()
        expire_ms = min(now_ms + request.expire_after_ms, _LATEST_MS) if request.expire_after_ms >= 0 else -1
        longest = self._config().offset_metadata_max_bytes
        records: list[CoordinatorRecord] = []
        codes: dict[TopicPartition, int] = {}
        for tp, offset, leader_epoch, metadata in request.offsets:
            metadata = metadata or ""
            if _java_length(metadata) > longest:
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
        self, offsets: GroupOffsets, topic: str, index: int, require_stable: bool
    ) -> tuple[CommittedOffset | None, int]:
        """What is committed, and an error code."""
        if require_stable and offsets.has_pending(topic, index):
            return None, UnstableOffsetCommitError.code
        return offsets.get(topic, index), 0

    # ---- administration

    def describe(self, group_id: str) -> DescribedGroup:
        group = self.groups.get(group_id)
        if group is None or group.state is GroupState.DEAD:
            raise GroupIdNotFoundError(f"there is no group {group_id!r}")
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
        """Those in one of the states and of one of the types, which are in lower case; all, if there are none."""
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
            raise GroupIdNotFoundError(f"there is no group {group_id!r}")
        if group.state is not GroupState.EMPTY:
            raise NonEmptyGroupError(f"group {group_id} has members")
        gone = sorted(self.offsets_of(group_id).all_partitions())
        return CoordinatorResult(
            [*(offset_record(group_id, tp, None) for tp in gone), group_record(group_id, None)], None
        )

    def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> CoordinatorResult[dict[TopicPartition, int]]:
        """Takes offsets back, except of topics that members read."""
        group = self.groups.get(group_id)
        if group is None or group.state is GroupState.DEAD:
            raise GroupIdNotFoundError(f"there is no group {group_id!r}")
        if group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise NonEmptyGroupError(f"group {group_id} has members, and what they read is not known")
        known = self.offsets_of(group_id).all_partitions()
        records: list[CoordinatorRecord] = []
        codes: dict[TopicPartition, int] = {}
        for tp in partitions:
            if group.state is not GroupState.EMPTY and group.is_subscribed(tp.topic):
                codes[tp] = GroupSubscribedToTopicError.code
                continue
            codes[tp] = 0
            if tp in known:
                records.append(offset_record(group_id, tp, None))
        return CoordinatorResult(records, codes)

    def forget_topics(self, topics: set[str]) -> CoordinatorResult[bool]:
        """Topics were deleted: what was committed of them means nothing any more. A thousand records at once; the reply
        is whether that was all."""
        gone = [
            (group_id, tp)
            for group_id, offsets in self._offsets.items()
            for tp in sorted(offsets.all_partitions())
            if tp.topic in topics
        ]
        records = [offset_record(group_id, tp, None) for group_id, tp in gone[:_TOMBSTONES_AT_ONCE]]
        return CoordinatorResult(records, len(records) == len(gone))

    # ---- retention

    def _schedule_expiry(self) -> None:
        self._context.schedule("expiry", self._config().offsets_retention_check_interval_ms, self._expiry_due)

    def _expiry_due(self) -> CoordinatorResult[None]:
        self._schedule_expiry()
        return self.expire()

    def expire(self) -> CoordinatorResult[None]:
        """Takes back what is too old. A thousand records at once; the rest comes when those are written."""
        now_ms = self._context.now_ms()
        records: list[CoordinatorRecord] = []
        for group in list(self.groups.values()):
            room = _TOMBSTONES_AT_ONCE - len(records)
            if room <= 0:
                break
            offsets = self.offsets_of(group.group_id)
            expired = self._expired(group, offsets, now_ms)
            records += [offset_record(group.group_id, tp, None) for tp in expired[:room]]
            if len(expired) <= room and self._is_idle(group) and len(expired) == len(offsets.all_partitions()):
                if group.is_stored or expired:
                    records.append(group_record(group.group_id, None))
                else:
                    self.members.remove_group(group, UnknownMemberIdError)  # never written: somebody asked for an id
                    del self.groups[group.group_id]
        if not records:
            return EMPTY_RESULT
        _logger.info("%d records of groups and offsets have expired", len(records))
        return CoordinatorResult(
            records, None, on_completion=self._expire_more if len(records) >= _TOMBSTONES_AT_ONCE else None
        )

    def _expire_more(self, error: KafkaError | None) -> None:
        if error is None:
            self._context.schedule("expiry", 0, self._expiry_due)

    @staticmethod
    def _is_idle(group: ClassicGroup) -> bool:
        return group.state is GroupState.EMPTY and not group.pending_joins

    def _expired(self, group: ClassicGroup, offsets: GroupOffsets, now_ms: int) -> list[TopicPartition]:
        retention_ms = self._config().offsets_retention_ms
        pending = offsets.pending_partitions()
        since: Callable[[CommittedOffset], int]
        if group.protocol_type is not None and group.state is GroupState.EMPTY:
            # Old records have no time of the state.
            def since(each: CommittedOffset) -> int:
                return group.state_timestamp_ms if group.state_timestamp_ms >= 0 else each.commit_timestamp_ms
        elif group.protocol_type is None or (
            group.protocol_type == CONSUMER_PROTOCOL_TYPE and group.state is GroupState.STABLE
        ):

            def since(each: CommittedOffset) -> int:
                return each.commit_timestamp_ms
        else:
            return []
        read = group.state is GroupState.STABLE
        return [
            tp
            for tp, each in offsets
            if tp not in pending
            and not (read and group.is_subscribed(tp.topic))
            and each.is_expired(since(each), now_ms, retention_ms)
        ]


def _java_length(text: str) -> int:
    """What Kafka counts, though the limit is said to be one of bytes: units of UTF-16."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def commit_error(error: KafkaError) -> int:
    """The code for a commit that could not be written."""
    if isinstance(error, MessageSizeTooLargeError | RecordListTooLargeError):
        return InvalidCommitOffsetSizeError.code
    return error.code
