"""Decodes records of internal topics to JSON, for `console-consumer` and `dump-log`.

Field names and nesting are the same as in Kafka's tools. Unknown keys decode to None.
"""

import base64
import struct
from collections.abc import Iterable
from typing import Any

from headrace.common.ids import ZERO_UUID
from headrace.common.types import TopicPartition

Json = dict[str, Any]


def _version(data: bytes) -> int:
    return int(struct.unpack_from(">h", data)[0])


def group_key(data: bytes) -> tuple[int, Json] | None:
    """Returns the type and the fields of a key of `__consumer_offsets`, or None if it is unknown."""
    from headrace.coordinator.group.records import OffsetCommitKey, decode_key

    key = decode_key(data)
    if key is None:
        return None
    if isinstance(key, OffsetCommitKey):
        return _version(data), {"group": key.group, "topic": key.topic, "partition": key.partition}
    return _version(data), {"group": key.group}


def offset_value(data: bytes) -> tuple[int, Json]:
    from headrace.coordinator.group.records import decode_offset_value

    commit = decode_offset_value(data)
    value: Json = {"offset": commit.offset}
    if _version(data) >= 3:
        value["leaderEpoch"] = commit.leader_epoch
    value |= {"metadata": commit.metadata, "commitTimestamp": commit.commit_timestamp_ms}
    if _version(data) == 1:
        value["expireTimestamp"] = commit.expire_timestamp_ms
    if commit.topic_id != ZERO_UUID:
        value["topicId"] = str(commit.topic_id)
    return _version(data), value


def group_value(data: bytes) -> tuple[int, Json]:
    from headrace.coordinator.group.records import decode_group_value

    group = decode_group_value(data)
    return _version(data), {
        "protocolType": group.protocol_type,
        "generation": group.generation,
        "protocol": group.protocol,
        "leader": group.leader,
        "currentStateTimestamp": group.state_timestamp_ms,
        "members": [
            {
                "memberId": member.member_id,
                "groupInstanceId": member.group_instance_id,
                "clientId": member.client_id,
                "clientHost": member.client_host,
                "rebalanceTimeout": member.rebalance_timeout_ms,
                "sessionTimeout": member.session_timeout_ms,
                "subscription": _subscription(member.subscription),
                "assignment": _assignment(member.assignment),
            }
            for member in group.members
        ],
    }


def _subscription(data: bytes) -> Any:
    from headrace.client.group.consumer_protocol import decode_subscription

    subscription = decode_subscription(data)
    return {
        "topics": list(subscription.topics),
        "userData": _bytes(subscription.user_data),
        "ownedPartitions": _by_topic(subscription.owned),
        "generationId": subscription.generation,
        "rackId": subscription.rack,
    }


def _assignment(data: bytes) -> Any:
    from headrace.client.group.consumer_protocol import decode_assignment

    if not data:
        return {"assignedPartitions": [], "userData": None}
    assignment = decode_assignment(data)
    return {"assignedPartitions": _by_topic(assignment.partitions), "userData": _bytes(assignment.user_data)}


def _bytes(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _by_topic(partitions: Iterable[TopicPartition], name: str = "partitions") -> list[Json]:
    topics: dict[str, list[int]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    return [{"topic": topic, name: numbers} for topic, numbers in topics.items()]


def transaction_key(data: bytes) -> tuple[int, Json] | None:
    from headrace.coordinator.transaction.records import decode_key

    key = decode_key(data)
    return None if key is None else (_version(data), {"transactionalId": key})


def transaction_value(transactional_id: str, data: bytes) -> tuple[int, Json]:
    from headrace.coordinator.transaction.records import decode_transaction

    transaction = decode_transaction(transactional_id, data)
    value: Json = {
        "producerId": transaction.producer_id,
        "producerEpoch": transaction.producer_epoch,
        "transactionTimeoutMs": transaction.timeout_ms,
        "transactionStatus": transaction.state.code,
        "transactionPartitions": _by_topic(sorted(transaction.partitions), "partitionIds")
        if transaction.state.code
        else None,
        "transactionLastUpdateTimestampMs": transaction.updated_ms,
        "transactionStartTimestampMs": transaction.start_ms,
    }
    if transaction.version:
        value["clientTransactionVersion"] = transaction.version
    return _version(data), value
