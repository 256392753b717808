"""Requests about given resources, for every API that requires rights: sent by clients without and with these rights."""

import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.support.broker.answers import Case

from headrace.protocol import ApiKey
from headrace.records import BatchBuilder

NODE_ID = 1
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
UNKNOWN_ID = uuid.UUID(int=0x1234)
OLD_EPOCH = 0
"""The epoch of a controller or broker that is no longer current, so that its command has no effect."""


class Resources(NamedTuple):
    """The resources that the requests name."""

    topic: str
    topic_id: uuid.UUID
    group: str
    transactional_id: str


class RightsCase(NamedTuple):
    """A request. `by_id` is True if it names topics by id, whose existence Kafka does not hide."""

    case: Case
    by_id: bool = False

    @property
    def name(self) -> str:
        return self.case.name


def rights_cases(resources: Resources) -> list[RightsCase]:
    return [
        *_records(resources),
        *_groups(resources),
        *_transactions(resources),
        *_topics(resources),
        *_configs(resources),
        *_cluster(resources),
        *_brokers(resources),
    ]


def batch(producer_id: int = -1, epoch: int = -1, sequence: int = -1, *, is_transactional: bool = False) -> bytes:
    builder = BatchBuilder(
        producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=is_transactional
    )
    builder.append(b"key", b"value", timestamp=1_000)
    return bytes(builder.build())


def _case(name: str, key: ApiKey, request: dict[str, Any], version: int | None = None) -> Case:
    return Case(f"{key.name}: {name}", key, request, version)


def _by_id(resources: Resources, version: int, first_with_ids: int, field: str = "name") -> dict[str, Any]:
    return {"topic_id": resources.topic_id} if version >= first_with_ids else {field: resources.topic}


def _records(resources: Resources) -> Iterator[RightsCase]:
    topic = resources.topic
    for version in (3, 9, 12, 13):
        identity = _by_id(resources, version, 13)
        for acks in (1, -1):
            data = [{**identity, "partition_data": [{"index": 0, "records": batch()}]}]
            request = {"acks": acks, "timeout_ms": 10_000, "topic_data": data}
            yield RightsCase(_case(f"version {version}, acks={acks}", ApiKey.PRODUCE, request, version), version >= 13)
    transactional = batch(7, 0, 0, is_transactional=True)
    for transactional_id in (resources.transactional_id, None):
        data = [{"name": topic, "partition_data": [{"index": 0, "records": transactional}]}]
        request = {"acks": -1, "transactional_id": transactional_id, "timeout_ms": 10_000, "topic_data": data}
        yield RightsCase(_case(f"a transaction of {transactional_id}", ApiKey.PRODUCE, request, 11))
    for version in (4, 7, 12, 13, 16):
        identity = _by_id(resources, version, 13, "topic")
        partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
        request = {
            "max_wait_ms": 0,
            "min_bytes": 0,
            "max_bytes": 1000,
            "topics": [{**identity, "partitions": [partition]}],
        }
        request |= {"session_epoch": -1}
        yield RightsCase(_case(f"version {version}", ApiKey.FETCH, request, version), version >= 13)
        follower = {"replica_state": {"replica_id": 2}} if version >= 15 else {"replica_id": 2}
        yield RightsCase(
            _case(f"version {version}, as a follower", ApiKey.FETCH, {**request, **follower}, version), version >= 13
        )
    for version in (1, 4, 7):
        partitions = [{"partition_index": 0, "timestamp": timestamp} for timestamp in (-1,)]
        request = {"replica_id": -1, "topics": [{"name": topic, "partitions": partitions}]}
        yield RightsCase(_case(f"version {version}", ApiKey.LIST_OFFSETS, request, version))
    request = {"topics": [{"topic": topic, "partitions": [{"partition": 0, "leader_epoch": 0}]}]}
    for version in (2, 4):
        yield RightsCase(_case(f"version {version}", ApiKey.OFFSET_FOR_LEADER_EPOCH, request, version))
    request = {"topics": [{"name": topic, "partitions": [{"partition_index": 0, "offset": 0}]}], "timeout_ms": 1000}
    yield RightsCase(_case("one partition", ApiKey.DELETE_RECORDS, request))
    request = {"topics": [{"name": topic, "partition_indexes": [0]}]}
    yield RightsCase(_case("one partition", ApiKey.DESCRIBE_PRODUCERS, request))


def _groups(resources: Resources) -> Iterator[RightsCase]:
    topic, group = resources.topic, resources.group

    def case(name: str, key: ApiKey, request: dict[str, Any], version: int | None = None) -> RightsCase:
        return RightsCase(_case(name, key, request, version))

    protocols = [{"name": "range", "metadata": b""}]
    join = {"group_id": group, "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "protocols": protocols}
    join |= {"protocol_type": "consumer", "member_id": "nobody"}
    for version in (2, 5, 7, 9):
        yield case(f"version {version}", ApiKey.JOIN_GROUP, join, version)
    for version in (0, 5):
        sync = {"group_id": group, "generation_id": 1, "member_id": "nobody"}
        sync |= {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
        yield case(f"version {version}", ApiKey.SYNC_GROUP, sync, version)
    yield case("a member", ApiKey.HEARTBEAT, {"group_id": group, "generation_id": 1, "member_id": "nobody"})
    yield case("version 2", ApiKey.LEAVE_GROUP, {"group_id": group, "member_id": "nobody"}, 2)
    yield case("version 5", ApiKey.LEAVE_GROUP, {"group_id": group, "members": [{"member_id": "nobody"}]}, 5)
    for version in (2, 3, 5, 6):
        request: dict[str, Any] = {"groups": [group]}
        request |= {"include_authorized_operations": True} if version >= 3 else {}
        yield case(f"version {version}", ApiKey.DESCRIBE_GROUPS, request, version)
    yield case("all", ApiKey.LIST_GROUPS, {}, 4)
    for version in (2, 8, 9):
        partitions = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
        request = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": ""}
        request |= {"topics": [{"name": topic, "partitions": partitions}]}
        yield case(f"version {version}", ApiKey.OFFSET_COMMIT, request, version)
    request = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": ""}
    request |= {"topics": [{"topic_id": resources.topic_id, "partitions": partitions}]}
    yield RightsCase(_case("by id", ApiKey.OFFSET_COMMIT, request, 10), by_id=True)
    for version in (2, 7):
        request = {"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}
        yield case(f"version {version}", ApiKey.OFFSET_FETCH, request, version)
        yield case(f"version {version}, all topics", ApiKey.OFFSET_FETCH, {**request, "topics": None}, version)
    for version in (8, 9):
        for topics in ([{"name": topic, "partition_indexes": [0]}], None):
            request = {"groups": [{"group_id": group, "topics": topics}]}
            yield case(
                f"version {version}, {'one topic' if topics else 'all topics'}", ApiKey.OFFSET_FETCH, request, version
            )
    topics = [{"topic_id": resources.topic_id, "partition_indexes": [0]}]
    request = {"groups": [{"group_id": group, "topics": topics}]}
    yield RightsCase(_case("by id", ApiKey.OFFSET_FETCH, request, 10), by_id=True)
    for key_type, name in ((0, group), (1, resources.transactional_id)):
        request = {"key_type": key_type, "key": name}
        yield case(f"version 3, type {key_type}", ApiKey.FIND_COORDINATOR, request, 3)
        request = {"key_type": key_type, "coordinator_keys": [name]}
        yield case(f"version 4, type {key_type}", ApiKey.FIND_COORDINATOR, request, 4)
    request = {"group_id": group, "topics": [{"name": topic, "partitions": [{"partition_index": 0}]}]}
    yield case("one partition", ApiKey.OFFSET_DELETE, request)
    yield case("one group", ApiKey.DELETE_GROUPS, {"groups_names": [group]})


def _transactions(resources: Resources) -> Iterator[RightsCase]:
    topic, transactional_id = resources.topic, resources.transactional_id

    def case(name: str, key: ApiKey, request: dict[str, Any], version: int | None = None) -> RightsCase:
        return RightsCase(_case(name, key, request, version))

    for version in (0, 4):
        request: dict[str, Any] = {"transactional_id": None, "transaction_timeout_ms": 60_000}
        yield case(f"version {version}, idempotent", ApiKey.INIT_PRODUCER_ID, request, version)
        request = {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000}
        request |= {"producer_id": 99_999, "producer_epoch": 0} if version >= 3 else {}
        yield case(f"version {version}, transactional", ApiKey.INIT_PRODUCER_ID, request, version)
    producer = {"producer_id": 99_999, "producer_epoch": 0}
    for name in (topic, "__consumer_offsets"):
        topics = [{"name": name, "partitions": [0]}]
        request = {f"v3_and_below_{name}": value for name, value in producer.items()}
        request |= {"v3_and_below_transactional_id": transactional_id, "v3_and_below_topics": topics}
        yield case(f"of a client, {name}", ApiKey.ADD_PARTITIONS_TO_TXN, request, 3)
    topics = [{"name": topic, "partitions": [0]}]
    request = {"transactions": [{"transactional_id": transactional_id, **producer, "topics": topics}]}
    yield case("of a broker", ApiKey.ADD_PARTITIONS_TO_TXN, request, 4)
    request = {"transactional_id": transactional_id, **producer, "group_id": resources.group}
    for version in (0, 3):
        yield case(f"version {version}", ApiKey.ADD_OFFSETS_TO_TXN, request, version)
        end = {"transactional_id": transactional_id, **producer, "committed": True}
        yield case(f"version {version}", ApiKey.END_TXN, end, version)
    for version in (0, 3):
        partitions = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
        commit = {**request, "topics": [{"name": topic, "partitions": partitions}]}
        yield case(f"version {version}", ApiKey.TXN_OFFSET_COMMIT, commit, version)
    marker = {**producer, "transaction_result": False, "topics": [{"name": topic, "partition_indexes": [0, 99]}]}
    yield case("a marker", ApiKey.WRITE_TXN_MARKERS, {"markers": [{**marker, "coordinator_epoch": -1}]}, 1)
    yield case("one id", ApiKey.DESCRIBE_TRANSACTIONS, {"transactional_ids": [transactional_id]})
    yield case("all", ApiKey.LIST_TRANSACTIONS, {}, 0)


def _topics(resources: Resources) -> Iterator[RightsCase]:
    topic = resources.topic

    def case(name: str, key: ApiKey, request: dict[str, Any], version: int | None = None) -> RightsCase:
        return RightsCase(_case(name, key, request, version))

    for version in (1, 4, 8, 12):
        request: dict[str, Any] = {"topics": [{"name": topic}]}
        request |= {"allow_auto_topic_creation": True} if version >= 4 else {}
        request |= {"include_topic_authorized_operations": True} if version >= 8 else {}
        request |= {"include_cluster_authorized_operations": True} if version == 8 else {}
        yield case(f"version {version}, one topic", ApiKey.METADATA, request, version)
        yield case(f"version {version}, all topics", ApiKey.METADATA, {**request, "topics": None}, version)
    request = {"topics": [{"name": None, "topic_id": resources.topic_id}]}
    yield RightsCase(_case("by id", ApiKey.METADATA, request, 12), by_id=True)
    yield case(
        "one topic", ApiKey.DESCRIBE_TOPIC_PARTITIONS, {"topics": [{"name": topic}], "response_partition_limit": 9}
    )
    yield case("all topics", ApiKey.DESCRIBE_TOPIC_PARTITIONS, {"topics": [], "response_partition_limit": 9})
    for version in (2, 5, 7):
        new = {"name": topic, "num_partitions": 1, "replication_factor": 1}
        request = {"topics": [new], "timeout_ms": 10_000}
        yield case(f"version {version}", ApiKey.CREATE_TOPICS, request, version)
    for version in (0, 3):
        request = {"topics": [{"name": topic, "count": 3, "assignments": None}], "timeout_ms": 10_000}
        yield case(f"version {version}", ApiKey.CREATE_PARTITIONS, request, version)
    yield case("version 5", ApiKey.DELETE_TOPICS, {"topic_names": [topic], "timeout_ms": 10_000}, 5)
    yield case("version 6", ApiKey.DELETE_TOPICS, {"topics": [{"name": topic}], "timeout_ms": 10_000}, 6)
    by_id = {"topics": [{"name": None, "topic_id": resources.topic_id}], "timeout_ms": 10_000}
    yield RightsCase(_case("by id", ApiKey.DELETE_TOPICS, by_id, 6), by_id=True)


def _configs(resources: Resources) -> Iterator[RightsCase]:
    changes = {
        (TOPIC, resources.topic): ("retention.ms", "1234567"),
        (GROUP, resources.group): ("consumer.session.timeout.ms", "46000"),
        (BROKER, str(NODE_ID)): ("log.retention.ms", "1234567"),
        (BROKER, ""): ("log.retention.ms", "1234567"),
        (CLIENT_METRICS, "subscription"): ("interval.ms", "1000"),
        (LOGGER, str(NODE_ID)): ("headrace.test", "INFO"),
    }
    for (kind, name), (key, value) in changes.items():
        resource = {"resource_type": kind, "resource_name": name}
        described = {"resources": [{**resource, "configuration_keys": None}]}
        yield RightsCase(_case(f"type {kind} {name}", ApiKey.DESCRIBE_CONFIGS, described))
        config = {"name": key, "value": value}
        request = {"resources": [{**resource, "configs": [{**config, "config_operation": 0}]}]}
        yield RightsCase(_case(f"type {kind} {name}", ApiKey.INCREMENTAL_ALTER_CONFIGS, request))
        if kind != LOGGER:
            request = {"resources": [{**resource, "configs": [config]}]}
            yield RightsCase(_case(f"type {kind} {name}", ApiKey.ALTER_CONFIGS, request))
    yield RightsCase(_case("all", ApiKey.LIST_CONFIG_RESOURCES, {}, 1))
    yield RightsCase(_case("client metrics", ApiKey.LIST_CONFIG_RESOURCES, {}, 0))


def _cluster(resources: Resources) -> Iterator[RightsCase]:
    topic = resources.topic

    def case(name: str, key: ApiKey, request: dict[str, Any], version: int | None = None) -> RightsCase:
        return RightsCase(_case(name, key, request, version))

    yield case("operations", ApiKey.DESCRIBE_CLUSTER, {"include_cluster_authorized_operations": True}, 1)
    for version in (1, 2, 4):
        request: dict[str, Any] = {"topics": [{"topic": topic, "partitions": [0]}]}
        yield case(f"version {version}", ApiKey.DESCRIBE_LOG_DIRS, request, version)
    for version in (1, 2):
        request = {"dirs": [{"path": "/nowhere", "topics": [{"name": topic, "partitions": [0, 1]}]}]}
        yield case(f"version {version}", ApiKey.ALTER_REPLICA_LOG_DIRS, request, version)
    for version in (0, 1, 2):
        request = {"topic_partitions": [{"topic": topic, "partitions": [0]}], "timeout_ms": 10_000}
        yield case(f"version {version}", ApiKey.ELECT_LEADERS, request, version)
    partitions = [{"partition_index": 0, "replicas": [NODE_ID]}]
    request = {"topics": [{"name": topic, "partitions": partitions}], "timeout_ms": 10_000}
    yield case("one partition", ApiKey.ALTER_PARTITION_REASSIGNMENTS, request, 0)
    request = {"topics": [{"name": topic, "partition_indexes": [0]}], "timeout_ms": 10_000}
    yield case("one partition", ApiKey.LIST_PARTITION_REASSIGNMENTS, request)
    yield case("all", ApiKey.LIST_PARTITION_REASSIGNMENTS, {"topics": None, "timeout_ms": 10_000})
    update = {"feature": "transaction.version", "max_version_level": 1}
    yield case("a feature", ApiKey.UPDATE_FEATURES, {"feature_updates": [update], "timeout_ms": 10_000}, 1)
    entry = {"principal": "User:eve", "host": "*", "operation": 3, "permission_type": 3}
    acl = {**entry, "resource_type": 2, "resource_name": topic, "resource_pattern_type": 3}
    yield case("two", ApiKey.CREATE_ACLS, {"creations": [acl, acl]})
    selected = {"resource_type_filter": 2, "resource_name_filter": topic, "pattern_type_filter": 3}
    selected |= {"principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}
    yield case("one topic", ApiKey.DESCRIBE_ACLS, selected)
    yield case("one topic", ApiKey.DELETE_ACLS, {"filters": [selected]})
    quota = {"entity": [{"entity_type": "user", "entity_name": "eve"}], "ops": [{"key": "request_percentage"}]}
    quota["ops"][0] |= {"value": 1.0, "remove": False}
    yield case("a user", ApiKey.ALTER_CLIENT_QUOTAS, {"entries": [quota], "validate_only": False})
    deletion = {"name": "eve", "mechanism": 1}
    yield case("a user", ApiKey.ALTER_USER_SCRAM_CREDENTIALS, {"deletions": [deletion], "upsertions": []})
    yield case("a user", ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": [{"name": "eve"}]})
    component = {"entity_type": "user", "match_type": 0, "match": "eve"}
    yield case("a user", ApiKey.DESCRIBE_CLIENT_QUOTAS, {"components": [component], "strict": False})
    owner = {"owner_principal_type": "User", "owner_principal_name": "somebody"}
    request = {**owner, "renewers": [], "max_lifetime_ms": -1}
    yield case("another owner", ApiKey.CREATE_DELEGATION_TOKEN, request)
    yield case("all", ApiKey.DESCRIBE_DELEGATION_TOKEN, {"owners": None})


def _brokers(resources: Resources) -> Iterator[RightsCase]:
    """The requests between brokers: commands of an old controller, and requests of an old broker."""
    topic, topic_id = resources.topic, resources.topic_id

    def case(name: str, key: ApiKey, request: dict[str, Any], version: int | None = None) -> RightsCase:
        return RightsCase(_case(name, key, request, version))

    command = {"controller_id": 99, "controller_epoch": OLD_EPOCH}
    state = {"partition_index": 0, "controller_epoch": OLD_EPOCH, "leader": 99, "leader_epoch": 99, "isr": [99]}
    state |= {"replicas": [99]}
    leader = {**state, "partition_epoch": 99}
    for version in (1, 4, 7):
        states: dict[str, Any] = {"topic_states": [{"topic_name": topic, "partition_states": [leader]}]}
        if version >= 5:
            states["topic_states"][0]["topic_id"] = topic_id
        if version < 2:
            states = {"ungrouped_partition_states": [{**leader, "topic_name": topic}]}
        request: dict[str, Any] = {**command, **states, "live_leaders": []}
        yield RightsCase(_case(f"version {version}", ApiKey.LEADER_AND_ISR, request, version), version >= 5)
    deleted = {"partition_index": 0, "leader_epoch": 99, "delete_partition": True}
    for version in (0, 1, 4):
        request = {**command, "topic_states": [{"topic_name": topic, "partition_states": [deleted]}]}
        if version == 0:
            request = {**command, "delete_partitions": True}
            request |= {"ungrouped_partitions": [{"topic_name": topic, "partition_index": 0}]}
        elif version < 3:
            request = {**command, "delete_partitions": True, "topics": [{"name": topic, "partition_indexes": [0]}]}
        yield case(f"version {version}", ApiKey.STOP_REPLICA, request, version)
    request = {**command, "topic_states": [], "live_brokers": []}
    yield case("version 7", ApiKey.UPDATE_METADATA, request, 7)
    broker = {"broker_id": 99, "broker_epoch": OLD_EPOCH}
    yield case("version 3", ApiKey.CONTROLLED_SHUTDOWN, broker)
    yield case("version 0", ApiKey.ALLOCATE_PRODUCER_IDS, broker)
    for version in (1, 3):
        change = {"partition_index": 0, "leader_epoch": 99, "partition_epoch": 99}
        change |= {"new_isr_with_epochs": [{"broker_id": 99}]} if version >= 3 else {"new_isr": [99]}
        identity = {"topic_id": topic_id} if version >= 2 else {"topic_name": topic}
        request = {**broker, "topics": [{**identity, "partitions": [change]}]}
        yield RightsCase(_case(f"version {version}", ApiKey.ALTER_PARTITION, request, version), version >= 2)
