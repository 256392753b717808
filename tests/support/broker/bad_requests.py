"""Requests that a broker must refuse, or that are at the edge of what it accepts.

They are sent in this order to a broker with node id 1 and the topics of `TOPICS`. `Names` has the ids that differ
between two brokers.
"""

import time
import uuid
from typing import Any, NamedTuple

from tests.support.broker.answers import Case

from headrace.protocol import ApiKey
from headrace.records import BatchBuilder, Compression

NODE_ID = 1
PLAIN, COMPACTED, STAMPED, APPENDED, LARGE = "plain", "compacted", "stamped", "appended", "large"
TOPICS = {
    PLAIN: {},
    COMPACTED: {"cleanup.policy": "compact"},
    STAMPED: {"message.timestamp.before.max.ms": "3600000", "message.timestamp.after.max.ms": "3600000"},
    APPENDED: {"message.timestamp.type": "LogAppendTime"},
    LARGE: {"max.message.bytes": "2000", "segment.bytes": "1048576"},
}
"""Each has two partitions."""
UNKNOWN_ID = uuid.UUID(int=0x1234)
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


LIVE_GROUP, INSTANCE, TRANSACTION = "live", "instance", "transaction"


class Names(NamedTuple):
    """What differs between two brokers."""

    topic_ids: dict[str, uuid.UUID]
    member_id: str
    """The one member of LIVE_GROUP, with the id INSTANCE. The group is stable, in generation 1."""
    producer_id: int
    """An idempotent producer with epoch 0."""
    transactional_producer_id: int
    """The producer of TRANSACTION, with epoch 0."""


def all_cases(names: Names) -> list[Case]:
    return [
        *_create_topics(),
        *_create_partitions(),
        *_delete_topics(names),
        *_delete_records(),
        *_configs(),
        *_produce(names),
        *_fetch(names),
        *_offsets(),
        *_metadata(names),
        *_groups(names),
        *_live_group(names),
        *_transactions(),
        *_open_transaction(names),
        *_sequences(names),
        *_cluster(),
        *_security(),
        *_quotas(),
    ]


def _create_topics() -> list[Case]:
    def case(name: str, *topics: dict[str, Any], validate_only: bool = True, version: int | None = None) -> Case:
        defaults = {"num_partitions": 1, "replication_factor": 1}
        request = {"topics": [{**defaults, **topic} for topic in topics], "validate_only": validate_only}
        return Case(f"CreateTopics: {name}", ApiKey.CREATE_TOPICS, request, version)

    def config(key: str, value: str | None) -> Case:
        return case(f"{key}={value}", {"name": "new", "configs": [{"name": key, "value": value}]})

    def assigned(name: str, *replicas: tuple[int, list[int]], **more: int) -> Case:
        assignments = [{"partition_index": index, "broker_ids": ids} for index, ids in replicas]
        topic = {"name": "new", "num_partitions": -1, "replication_factor": -1, "assignments": assignments, **more}
        return case(f"assignment, {name}", topic)

    return [
        case("a valid topic", {"name": "new"}),
        case("a valid topic, version 4", {"name": "new"}, version=4),
        case("defaults", {"name": "new", "num_partitions": -1, "replication_factor": -1}),
        case("an existing topic", {"name": PLAIN}),
        case("an existing topic, not only validated", {"name": PLAIN}, validate_only=False),
        case("an existing topic with another error", {"name": PLAIN, "num_partitions": 0}),
        *(case(f"name {name[:20]!r}", {"name": name}) for name in ("", ".", "..", "a b", "é", "x" * 250)),
        case("the metadata topic", {"name": "__cluster_metadata"}),
        case("an internal topic", {"name": "__consumer_offsets_"}),
        case("a colliding name", {"name": "colliding.name"}, validate_only=False),
        case("a colliding name, second", {"name": "colliding_name"}),
        case("the same topic twice", {"name": "new"}, {"name": "new"}, {"name": "newer"}),
        *(case(f"{count} partitions", {"name": "new", "num_partitions": count}) for count in (0, -2, 10_001)),
        case("many partitions in total", *({"name": f"new{n}", "num_partitions": 6_000} for n in range(2))),
        *(case(f"{factor} replicas", {"name": "new", "replication_factor": factor}) for factor in (0, -2, 2)),
        assigned("valid", (0, [NODE_ID]), (1, [NODE_ID])),
        assigned("unknown broker", (0, [NODE_ID + 1])),
        assigned("unknown and known broker", (0, [NODE_ID, NODE_ID + 1])),
        assigned("duplicate broker", (0, [NODE_ID, NODE_ID])),
        assigned("no brokers", (0, [])),
        assigned("a gap", (0, [NODE_ID]), (2, [NODE_ID])),
        assigned("not from 0", (1, [NODE_ID])),
        assigned("a negative broker", (0, [-1])),
        assigned("a duplicate partition", (0, [NODE_ID]), (0, [NODE_ID])),
        assigned("different lengths", (0, [NODE_ID]), (1, [NODE_ID, NODE_ID + 1])),
        assigned("and partitions", (0, [NODE_ID]), num_partitions=1),
        assigned("and replicas", (0, [NODE_ID]), replication_factor=1),
        config("no.such.key", "1"),
        config("retention.ms", None),
        config("retention.ms", "soon"),
        config("retention.ms", ""),
        config("retention.ms", "-2"),
        config("retention.ms", "99999999999999999999"),
        config("segment.bytes", "1"),
        config("segment.bytes", "99999999999"),
        config("max.message.bytes", "-1"),
        config("cleanup.policy", "shred"),
        config("cleanup.policy", ""),
        config("cleanup.policy", "delete,compact"),
        config("cleanup.policy", "delete,delete"),
        config("cleanup.policy", "compact,"),
        config("compression.type", "brotli"),
        config("compression.gzip.level", "10"),
        config("compression.lz4.level", "0"),
        config("compression.zstd.level", "23"),
        config("message.timestamp.type", "Never"),
        config("min.cleanable.dirty.ratio", "1.5"),
        config("min.cleanable.dirty.ratio", "x"),
        config("preallocate", "maybe"),
        config("min.insync.replicas", "0"),
        config("unclean.leader.election.enable", "yes"),
        config("follower.replication.throttled.replicas", "*"),
        config("follower.replication.throttled.replicas", "0:1,1:1"),
        config("leader.replication.throttled.replicas", "everyone"),
        config("remote.storage.enable", "true"),
        config("remote.storage.enable", "false"),
        config("local.retention.ms", "1000"),
        config("local.retention.ms", "-2"),
        config("remote.log.copy.disable", "true"),
        config("remote.log.delete.on.disable", "true"),
        config("message.format.version", "3.0"),
        config("errors.deadletterqueue.group.enable", "true"),
        case(
            "compaction lags that contradict",
            {
                "name": "new",
                "configs": [
                    {"name": "min.compaction.lag.ms", "value": "10"},
                    {"name": "max.compaction.lag.ms", "value": "5"},
                ],
            },
        ),
        case(
            "the same config twice",
            {"name": "new", "configs": [{"name": "retention.ms", "value": value} for value in "12"]},
        ),
        case(
            "two wrong configs",
            {"name": "new", "configs": [{"name": "retention.ms", "value": "x"}, {"name": "no.such", "value": "x"}]},
        ),
    ]


def _create_partitions() -> list[Case]:
    def case(name: str, *topics: dict[str, Any]) -> Case:
        request = {
            "topics": [{"assignments": None, **topic} for topic in topics],
            "timeout_ms": 10_000,
            "validate_only": True,
        }
        return Case(f"CreatePartitions: {name}", ApiKey.CREATE_PARTITIONS, request)

    def assigned(name: str, count: int, *replicas: list[int]) -> Case:
        assignments = [{"broker_ids": ids} for ids in replicas]
        return case(f"assignment, {name}", {"name": PLAIN, "count": count, "assignments": assignments})

    return [
        case("a valid number", {"name": PLAIN, "count": 3}),
        *(case(f"{count} partitions", {"name": PLAIN, "count": count}) for count in (2, 1, 0, -1, 10_003)),
        case("an unknown topic", {"name": "missing", "count": 3}),
        case("an invalid name", {"name": "a b", "count": 3}),
        case("no name", {"name": "", "count": 3}),
        case("the same topic twice", {"name": PLAIN, "count": 3}, {"name": PLAIN, "count": 4}),
        assigned("valid", 3, [NODE_ID]),
        assigned("empty", 3),
        assigned("too many", 3, [NODE_ID], [NODE_ID]),
        assigned("too few", 4, [NODE_ID]),
        assigned("unknown broker", 3, [NODE_ID + 1]),
        assigned("duplicate broker", 3, [NODE_ID, NODE_ID]),
        assigned("no brokers", 3, []),
        assigned("another replication factor", 3, [NODE_ID, NODE_ID + 1]),
    ]


def _delete_topics(names: Names) -> list[Case]:
    def case(name: str, *topics: dict[str, Any]) -> Case:
        return Case(f"DeleteTopics: {name}", ApiKey.DELETE_TOPICS, {"topics": list(topics), "timeout_ms": 10_000})

    def by_name(name: str, version: int, *topics: str) -> Case:
        request = {"topic_names": list(topics), "timeout_ms": 10_000}
        return Case(f"DeleteTopics: {name}, version {version}", ApiKey.DELETE_TOPICS, request, version)

    return [
        case("an unknown name", {"name": "missing"}),
        case("an unknown id", {"topic_id": UNKNOWN_ID}),
        case("an invalid name", {"name": "a b"}),
        case("no name", {"name": ""}),
        case("neither name nor id", {"name": None}),
        case("name and id", {"name": PLAIN, "topic_id": names.topic_ids[COMPACTED]}),
        case("the same name twice", {"name": "missing"}, {"name": "missing"}),
        case("the same id twice", {"topic_id": UNKNOWN_ID}, {"topic_id": UNKNOWN_ID}),
        by_name("an unknown name", 5, "missing"),
        by_name("an unknown name", 1, "missing"),
        by_name("the same name twice", 5, "missing", "missing"),
    ]


def _delete_records() -> list[Case]:
    def case(name: str, topic: str, offset: int, partition: int = 0) -> Case:
        partitions = [{"partition_index": partition, "offset": offset}]
        request = {"topics": [{"name": topic, "partitions": partitions}], "timeout_ms": 10_000}
        return Case(f"DeleteRecords: {name}", ApiKey.DELETE_RECORDS, request)

    return [
        case("an unknown topic", "missing", 0),
        case("an unknown partition", PLAIN, 0, 9),
        case("a negative partition", PLAIN, 0, -1),
        case("after the end", PLAIN, 1000),
        case("a negative offset", PLAIN, -2),
        case("a compacted topic", COMPACTED, 0),
        case("an internal topic", "__consumer_offsets", 0),
        case("offset 0", PLAIN, 0),
    ]


def _configs() -> list[Case]:
    def describe(name: str, kind: int, resource: str, keys: list[str] | None = None, synonyms: bool = False) -> Case:
        resources = [{"resource_type": kind, "resource_name": resource, "configuration_keys": keys}]
        request = {"resources": resources, "include_synonyms": synonyms}
        return Case(f"DescribeConfigs: {name}", ApiKey.DESCRIBE_CONFIGS, request)

    def change(name: str, kind: int, resource: str, *configs: tuple[str, int, str | None], apply: bool = False) -> Case:
        listed = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in configs]
        resources = [{"resource_type": kind, "resource_name": resource, "configs": listed}]
        request = {"resources": resources, "validate_only": not apply}
        return Case(f"IncrementalAlterConfigs: {name}", ApiKey.INCREMENTAL_ALTER_CONFIGS, request)

    def replace(name: str, kind: int, resource: str, *configs: tuple[str, str | None]) -> Case:
        listed = [{"name": key, "value": value} for key, value in configs]
        resources = [{"resource_type": kind, "resource_name": resource, "configs": listed}]
        request = {"resources": resources, "validate_only": True}
        return Case(f"AlterConfigs: {name}", ApiKey.ALTER_CONFIGS, request)

    twice = {"resource_type": TOPIC, "resource_name": PLAIN}
    set_one = {"name": "retention.ms", "config_operation": SET, "value": "1"}
    return [
        describe("an unknown topic", TOPIC, "missing"),
        describe("an invalid topic", TOPIC, "a b"),
        describe("no topic", TOPIC, ""),
        describe("another broker", BROKER, "7"),
        describe("a broker that is no number", BROKER, "x"),
        describe("all brokers", BROKER, ""),
        describe("a logger of another broker", LOGGER, "7"),
        describe("a logger without a broker", LOGGER, ""),
        describe("resource type 0", 0, "x"),
        describe("resource type 99", 99, "x"),
        describe("unknown keys", TOPIC, PLAIN, ["no.such.key"]),
        describe("no keys", TOPIC, PLAIN, []),
        describe("one key", TOPIC, PLAIN, ["retention.ms"], synonyms=True),
        describe("all keys of a topic", TOPIC, STAMPED, synonyms=True),
        describe("a group", GROUP, "any", synonyms=True),
        describe("no group", GROUP, ""),
        describe("client metrics", CLIENT_METRICS, "any", synonyms=True),
        describe("no client metrics", CLIENT_METRICS, ""),
        Case(
            "DescribeConfigs: the same topic twice",
            ApiKey.DESCRIBE_CONFIGS,
            {"resources": [{**twice, "configuration_keys": ["retention.ms"]}] * 2},
        ),
        change("an unknown topic", TOPIC, "missing", ("retention.ms", SET, "1")),
        change("no topic", TOPIC, "", ("retention.ms", SET, "1")),
        change("an invalid topic", TOPIC, "a b", ("retention.ms", SET, "1")),
        change("an unknown key", TOPIC, PLAIN, ("no.such.key", SET, "1")),
        change("an unknown key, deleted", TOPIC, PLAIN, ("no.such.key", DELETE, None)),
        change("an invalid value", TOPIC, PLAIN, ("retention.ms", SET, "x")),
        change("an empty value", TOPIC, PLAIN, ("retention.ms", SET, "")),
        change("null", TOPIC, PLAIN, ("retention.ms", SET, None)),
        change("null, appended", TOPIC, PLAIN, ("cleanup.policy", APPEND, None)),
        change("no key name", TOPIC, PLAIN, ("", SET, "1")),
        change("an unknown operation", TOPIC, PLAIN, ("retention.ms", 9, "1")),
        change("appended to a number", TOPIC, PLAIN, ("retention.ms", APPEND, "1")),
        change("appended to an unknown key", TOPIC, PLAIN, ("no.such.key", APPEND, "1")),
        change("appended", TOPIC, PLAIN, ("cleanup.policy", APPEND, "compact")),
        change("appended, invalid", TOPIC, PLAIN, ("cleanup.policy", APPEND, "shred")),
        change("subtracted to nothing", TOPIC, PLAIN, ("cleanup.policy", SUBTRACT, "delete")),
        change("the same key twice", TOPIC, PLAIN, ("retention.ms", SET, "1"), ("retention.ms", SET, "2")),
        change("no changes", TOPIC, PLAIN),
        Case(
            "IncrementalAlterConfigs: the same topic twice",
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            {"resources": [{**twice, "configs": [set_one]}] * 2, "validate_only": True},
        ),
        change("another broker", BROKER, "7", ("log.cleaner.threads", SET, "1")),
        change("a broker that is no number", BROKER, "x", ("log.cleaner.threads", SET, "1")),
        change("a dynamic broker config", BROKER, "1", ("log.cleaner.threads", SET, "2")),
        change("a dynamic broker config of all brokers", BROKER, "", ("log.cleaner.threads", SET, "2")),
        change("a static broker config", BROKER, "1", ("num.partitions", SET, "5")),
        change("a static broker config of all brokers", BROKER, "", ("node.id", SET, "5")),
        change("an unknown broker config", BROKER, "1", ("no.such.key", SET, "5")),
        change("an invalid broker config", BROKER, "1", ("log.retention.ms", SET, "x")),
        change("a broker config out of range", BROKER, "1", ("message.max.bytes", SET, "-5")),
        change("a config of one broker for all", BROKER, "", ("listeners", SET, "PLAINTEXT://:9092")),
        change("a logger", LOGGER, "1", ("root", SET, "INFO")),
        change("a wrong level", LOGGER, "1", ("root", SET, "LOUD")),
        change("an unknown logger", LOGGER, "1", ("no.such.logger", SET, "INFO")),
        change("a logger, appended", LOGGER, "1", ("root", APPEND, "INFO")),
        change("a logger of another broker", LOGGER, "7", ("root", SET, "INFO")),
        change("a logger without a broker", LOGGER, "", ("root", SET, "INFO")),
        change("resource type 0", 0, "x", ("a", SET, "1")),
        change("resource type 99", 99, "x", ("a", SET, "1")),
        *_group_configs(change, describe),
        *_client_metrics_configs(change, describe),
        replace("an unknown topic", TOPIC, "missing", ("retention.ms", "1")),
        replace("an unknown key", TOPIC, PLAIN, ("no.such.key", "1")),
        replace("an invalid value", TOPIC, PLAIN, ("retention.ms", "x")),
        replace("null", TOPIC, PLAIN, ("retention.ms", None)),
        replace("the same key twice", TOPIC, PLAIN, ("retention.ms", "1"), ("retention.ms", "2")),
        replace("a static broker config", BROKER, "1", ("num.partitions", "5")),
        replace("another broker", BROKER, "7", ("log.cleaner.threads", "5")),
        replace("a logger", LOGGER, "1", ("root", "INFO")),
        replace("resource type 99", 99, "x", ("a", "1")),
        replace("a group", GROUP, "g", ("consumer.session.timeout.ms", "46000")),
        replace("client metrics", CLIENT_METRICS, "m", ("interval.ms", "1000")),
        *(
            Case(
                f"ListConfigResources: types {types}, version {version}",
                ApiKey.LIST_CONFIG_RESOURCES,
                {"resource_types": types} if version else {},
                version,
            )
            for version, types in ((0, []), (1, [GROUP]), (1, [CLIENT_METRICS]), (1, [BROKER, LOGGER]), (1, [77]))
        ),
    ]


def _group_configs(change: Any, describe: Any) -> list[Case]:
    def set_group(key: str, value: str | None) -> Any:
        return change(f"group {key}={value}", GROUP, "billing", (key, SET, value))

    return [
        set_group("no.such.key", "1"),
        set_group("consumer.session.timeout.ms", "50000"),
        set_group("consumer.session.timeout.ms", "1"),
        set_group("consumer.session.timeout.ms", "99999999"),
        set_group("consumer.session.timeout.ms", "x"),
        set_group("consumer.heartbeat.interval.ms", "6000"),
        set_group("consumer.heartbeat.interval.ms", "1"),
        set_group("consumer.heartbeat.interval.ms", "99999999"),
        set_group("share.session.timeout.ms", "1"),
        set_group("share.heartbeat.interval.ms", "1"),
        set_group("share.auto.offset.reset", "earliest"),
        set_group("share.auto.offset.reset", "by_duration:PT1H"),
        set_group("share.auto.offset.reset", "never"),
        set_group("share.isolation.level", "read_committed"),
        set_group("share.isolation.level", "read_everything"),
        set_group("share.record.lock.duration.ms", "1"),
        set_group("share.delivery.count.limit", "1"),
        set_group("streams.num.standby.replicas", "9"),
        set_group("streams.session.timeout.ms", "1"),
        set_group("streams.heartbeat.interval.ms", "1"),
        change("no group", GROUP, "", ("consumer.session.timeout.ms", SET, "50000")),
        change("a group", GROUP, "billing", ("consumer.session.timeout.ms", SET, "46000"), apply=True),
        describe("a changed group", GROUP, "billing", synonyms=True),
        Case("ListConfigResources: a changed group", ApiKey.LIST_CONFIG_RESOURCES, {"resource_types": [GROUP]}),
        change("a group, reset", GROUP, "billing", ("consumer.session.timeout.ms", DELETE, None), apply=True),
        describe("a reset group", GROUP, "billing"),
    ]


def _client_metrics_configs(change: Any, describe: Any) -> list[Case]:
    def set_metrics(key: str, value: str | None) -> Any:
        return change(f"client metrics {key}={value}", CLIENT_METRICS, "slow", (key, SET, value))

    return [
        set_metrics("no.such.key", "1"),
        set_metrics("interval.ms", "1000"),
        set_metrics("interval.ms", "1"),
        set_metrics("interval.ms", "99999999"),
        set_metrics("interval.ms", "x"),
        set_metrics("metrics", "*"),
        set_metrics("metrics", "org.apache.kafka.producer.,org.apache.kafka.consumer."),
        set_metrics("metrics", ""),
        set_metrics("match", "client_id=a.*"),
        set_metrics("match", "client_id=a.*,client_software_name=b"),
        set_metrics("match", "no_such_name=a"),
        set_metrics("match", "client_id"),
        set_metrics("match", "client_id=["),
        change("client metrics appended", CLIENT_METRICS, "slow", ("metrics", APPEND, "a.")),
        change("no client metrics", CLIENT_METRICS, "", ("interval.ms", SET, "1000")),
        change("client metrics", CLIENT_METRICS, "slow", ("interval.ms", SET, "7000"), apply=True),
        describe("changed client metrics", CLIENT_METRICS, "slow", synonyms=True),
        Case("ListConfigResources: changed client metrics", ApiKey.LIST_CONFIG_RESOURCES, {}, 0),
    ]


def _batch(*records: tuple[bytes | None, int], **more: Any) -> bytes:
    """Builds a batch of records given by key and age in ms."""
    now_ms = int(time.time() * 1000)
    builder = BatchBuilder(**more)
    for key, age_ms in records:
        builder.append(key=key, value=b"value", timestamp=now_ms - age_ms)
    return bytes(builder.build())


def _produce(names: Names) -> list[Case]:
    def case(
        name: str, topic: str, records: bytes | None, version: int = 12, acks: int = 1, partition: int = 0
    ) -> Case:
        data = {"partition_data": [{"index": partition, "records": records}]}
        identity = {"topic_id": names.topic_ids.get(topic, UNKNOWN_ID)} if version >= 13 else {"name": topic}
        request = {"acks": acks, "timeout_ms": 10_000, "topic_data": [{**identity, **data}]}
        return Case(f"Produce: {name}", ApiKey.PRODUCE, request, version)

    good = _batch((b"key", 0))
    no_key = _batch((b"key", 0), (None, 0), (b"key", 0), (None, 0))
    far = 7_200_000
    bad_times = _batch((b"key", far), (b"key", 0), (b"key", -far), (b"key", 0))
    corrupt = bytearray(good)
    corrupt[-1] ^= 1
    old_magic = bytearray(good)
    old_magic[16] = 1
    shifted = bytearray(good)
    shifted[7] = 1
    return [
        case("a valid batch", PLAIN, good),
        case("an unknown topic", "missing", good),
        case("an unknown id", "missing", good, version=13),
        case("an unknown partition", PLAIN, good, partition=9),
        case("acks=5", PLAIN, good, acks=5),
        case("no records", PLAIN, b""),
        case("a truncated batch", PLAIN, good[:-3]),
        case("a wrong checksum", PLAIN, bytes(corrupt)),
        case("two batches", PLAIN, good + good),
        case("magic 1", PLAIN, bytes(old_magic)),
        case("another base offset", PLAIN, bytes(shifted)),
        case("no keys, compacted", COMPACTED, no_key),
        case("no keys, compacted, version 7", COMPACTED, no_key, version=7),
        case("no keys, compacted, gzip", COMPACTED, _batch((None, 0), (b"k", 0), codec=Compression.GZIP)),
        case("no keys, compacted, five", COMPACTED, _batch(*[(None, 0)] * 5)),
        case("out-of-range timestamps", STAMPED, bad_times),
        case("out-of-range timestamps, version 4", STAMPED, bad_times, version=4),
        case("a timestamp in the future", PLAIN, _batch((b"key", -far))),
        case("no timestamp", PLAIN, _batch_without_time()),
        case("too large", LARGE, _batch(*[(b"key" * 100, 0)] * 10)),
        case("zstd, version 6", PLAIN, _batch((b"key", 0), codec=Compression.ZSTD), version=6),
        case("an internal topic", "__consumer_offsets", good),
        case("a control batch", PLAIN, _control_batch()),
        case("an unknown producer id", PLAIN, _batch((b"k", 0), producer_id=99, producer_epoch=0, base_sequence=5)),
        case("a negative sequence", PLAIN, _batch((b"k", 0), producer_id=99, producer_epoch=0, base_sequence=-1)),
        case(
            "a transactional batch without a transaction",
            PLAIN,
            _batch((b"k", 0), producer_id=98, producer_epoch=0, base_sequence=0, transactional=True),
        ),
    ]


def _batch_without_time() -> bytes:
    builder = BatchBuilder()
    builder.append(key=b"key", value=b"value", timestamp=-1)
    return bytes(builder.build())


def _control_batch() -> bytes:
    builder = BatchBuilder(control=True, transactional=True, producer_id=97, producer_epoch=0)
    builder.append(key=b"\x00\x00\x00\x01", value=b"\x00\x00\x00\x00\x00\x00", timestamp=int(time.time() * 1000))
    return bytes(builder.build())


def _fetch(names: Names) -> list[Case]:
    def case(name: str, topic: str, offset: int = 0, version: int = 17, partition: int = 0, **more: int) -> Case:
        epoch = more.pop("current_leader_epoch", -1)
        asked = {
            "partition": partition,
            "fetch_offset": offset,
            "current_leader_epoch": epoch,
            "partition_max_bytes": 1000,
        }
        identity = {"topic_id": names.topic_ids.get(topic, UNKNOWN_ID)} if version >= 13 else {"topic": topic}
        request = {"max_wait_ms": 1, "min_bytes": 1, "topics": [{**identity, "partitions": [asked]}], **more}
        return Case(f"Fetch: {name}", ApiKey.FETCH, request, version)

    return [
        case("an unknown id", "missing"),
        case("an unknown topic", "missing", version=12),
        case("an unknown partition", APPENDED, partition=9),
        case("after the end", APPENDED, 1000),
        case("a negative offset", APPENDED, -5),
        case("a fenced leader epoch", APPENDED, current_leader_epoch=0),
        case("an unknown leader epoch", APPENDED, current_leader_epoch=99),
        case("an unknown session", APPENDED, session_id=12345, session_epoch=1),
        case("a wrong session epoch", APPENDED, session_id=0, session_epoch=7),
        case("a wrong isolation level", APPENDED, isolation_level=3),
        case("a negative max_bytes", APPENDED, max_bytes=-1),
    ]


def _offsets() -> list[Case]:
    def listed(name: str, topic: str, timestamp: int, version: int = 11, partition: int = 0, epoch: int = -1) -> Case:
        asked = {"partition_index": partition, "timestamp": timestamp}
        if version >= 4:
            asked["current_leader_epoch"] = epoch
        request = {"replica_id": -1, "topics": [{"name": topic, "partitions": [asked]}]}
        return Case(f"ListOffsets: {name}", ApiKey.LIST_OFFSETS, request, version)

    def at_epoch(name: str, topic: str, epoch: int, current: int = -1, partition: int = 0) -> Case:
        asked = {"partition": partition, "leader_epoch": epoch, "current_leader_epoch": current}
        request = {"topics": [{"topic": topic, "partitions": [asked]}]}
        return Case(f"OffsetForLeaderEpoch: {name}", ApiKey.OFFSET_FOR_LEADER_EPOCH, request)

    return [
        listed("an unknown topic", "missing", -1),
        listed("an unknown partition", APPENDED, -1, partition=9),
        *(listed(f"timestamp {timestamp}", APPENDED, timestamp) for timestamp in (-1, -2, -3, -4, -5, -6, -7, 5)),
        listed("timestamp -3, version 6", APPENDED, -3, version=6),
        listed("timestamp -4, version 7", APPENDED, -4, version=7),
        listed("a fenced leader epoch", APPENDED, -1, epoch=0),
        listed("an unknown leader epoch", APPENDED, -1, epoch=99),
        Case(
            "ListOffsets: the same partition twice",
            ApiKey.LIST_OFFSETS,
            {
                "replica_id": -1,
                "topics": [{"name": APPENDED, "partitions": [{"partition_index": 0, "timestamp": -1}] * 2}],
            },
        ),
        at_epoch("an unknown topic", "missing", 0),
        at_epoch("an unknown partition", APPENDED, 0, partition=9),
        at_epoch("an unknown leader epoch", APPENDED, 0, current=99),
        at_epoch("a future epoch", APPENDED, 99),
        at_epoch("a negative epoch", APPENDED, -2),
    ]


def _metadata(names: Names) -> list[Case]:
    def case(name: str, *topics: dict[str, Any], create: bool = False, version: int = 12) -> Case:
        request = {"topics": list(topics), "allow_auto_topic_creation": create}
        return Case(f"Metadata: {name}", ApiKey.METADATA, request, version)

    def describe(name: str, *topics: str, **more: Any) -> Case:
        request = {"topics": [{"name": topic} for topic in topics], **more}
        return Case(f"DescribeTopicPartitions: {name}", ApiKey.DESCRIBE_TOPIC_PARTITIONS, request)

    return [
        case("an unknown name", {"name": "missing"}),
        case("an unknown id", {"name": None, "topic_id": UNKNOWN_ID}),
        case("an id in version 10", {"name": None, "topic_id": UNKNOWN_ID}, version=10),
        case("null name", {"name": None}),
        case("null name, version 10", {"name": None}, version=10),
        case("an invalid name", {"name": "a b"}),
        case("an invalid name, created", {"name": "a b"}, create=True),
        case("no name", {"name": ""}),
        case("no name, created", {"name": ""}, create=True),
        case("name and id", {"name": PLAIN, "topic_id": names.topic_ids[COMPACTED]}),
        case("no topics"),
        case("the same name twice", {"name": "missing"}, {"name": "missing"}),
        case("an unknown name, created", {"name": "created-by-metadata"}, create=True),
        case("two unknown names, created", {"name": "created-1"}, {"name": "created-1"}, create=True),
        describe("an unknown name", "missing"),
        describe("an invalid name", "a b"),
        describe("a cursor", PLAIN, cursor={"topic_name": PLAIN, "partition_index": 1}),
        describe("a cursor before", PLAIN, cursor={"topic_name": "a", "partition_index": 0}),
        describe("a cursor of another topic", PLAIN, cursor={"topic_name": "zzz", "partition_index": 0}),
        describe("a negative cursor", PLAIN, cursor={"topic_name": PLAIN, "partition_index": -1}),
        describe("a limit of 0", PLAIN, response_partition_limit=0),
        describe("a limit of 1", PLAIN, response_partition_limit=1),
    ]


def _join(name: str, version: int = 9, **fields: Any) -> Case:
    request = {
        "group_id": "joined",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
        **fields,
    }
    return Case(f"JoinGroup: {name}", ApiKey.JOIN_GROUP, request, version)


def _groups(names: Names) -> list[Case]:
    def commit(name: str, topic: str = APPENDED, version: int = 9, partition: int = 0, **fields: Any) -> Case:
        metadata = fields.pop("metadata", "")
        offset = fields.pop("offset", 1)
        asked = {"partition_index": partition, "committed_offset": offset, "committed_metadata": metadata}
        identity = {"topic_id": names.topic_ids.get(topic, UNKNOWN_ID)} if version >= 10 else {"name": topic}
        request = {"group_id": "committed", "topics": [{**identity, "partitions": [asked]}], **fields}
        return Case(f"OffsetCommit: {name}", ApiKey.OFFSET_COMMIT, request, version)

    def fetched(name: str, group: str, topics: Any = None, version: int = 9, **fields: Any) -> Case:
        request: dict[str, Any] = {"groups": [{"group_id": group, "topics": topics, **fields}]}
        if version < 8:
            request = {"group_id": group, "topics": topics}
        return Case(f"OffsetFetch: {name}", ApiKey.OFFSET_FETCH, request, version)

    def member(key: ApiKey, name: str, **fields: Any) -> Case:
        request = {"group_id": "missing", "generation_id": 1, "member_id": "m", **fields}
        return Case(f"{key.name}: {name}", key, request)

    missing = [{"name": "missing", "partition_indexes": [0]}]
    known = [{"name": APPENDED, "partition_indexes": [0, 9]}]
    return [
        Case("FindCoordinator: key type 7", ApiKey.FIND_COORDINATOR, {"key_type": 7, "coordinator_keys": ["g"]}, 5),
        Case("FindCoordinator: key type 7, v1", ApiKey.FIND_COORDINATOR, {"key_type": 7, "key": "g"}, 1),
        Case("FindCoordinator: type 2, v5", ApiKey.FIND_COORDINATOR, {"key_type": 2, "coordinator_keys": ["g"]}, 5),
        Case("FindCoordinator: no keys", ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": []}),
        Case("FindCoordinator: an empty key", ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": [""]}),
        _join("no group", group_id=""),
        _join("a short session timeout", session_timeout_ms=10),
        _join("a long session timeout", session_timeout_ms=10_000_000),
        _join("an unknown member", member_id="m"),
        _join("an unknown member, version 3", member_id="m", version=3),
        _join("no protocols", protocols=[]),
        _join("no protocol type", protocol_type=""),
        _join("a member id is required"),
        commit("an unknown topic", "missing"),
        commit("an unknown partition", partition=9),
        commit("an unknown id", "missing", version=10),
        commit("too much metadata", metadata="x" * 5000),
        commit("a negative offset", offset=-5),
        commit("no group", group_id=""),
        commit("an unknown member", member_id="m", generation_id_or_member_epoch=1),
        commit("an unknown member, version 8", member_id="m", generation_id_or_member_epoch=1, version=8),
        commit("a member without a generation", member_id="m"),
        commit("valid"),
        commit("a group instance id", group_instance_id="i"),
        commit("a generation in a group without members", generation_id_or_member_epoch=1, member_id="m"),
        fetched("an unknown group", "missing"),
        fetched("an unknown group and topic", "missing", missing),
        fetched("an unknown topic", "committed", missing),
        fetched("an unknown partition", "committed", known),
        fetched("an unknown partition, version 7", "committed", known, version=7),
        fetched("all topics", "committed"),
        fetched("no group", ""),
        fetched("an unknown member", "committed", known, member_id="m", member_epoch=1),
        member(ApiKey.SYNC_GROUP, "an unknown group", protocol_type="consumer", protocol_name="range"),
        member(ApiKey.SYNC_GROUP, "no protocol"),
        member(ApiKey.SYNC_GROUP, "no group", group_id="", protocol_type="consumer", protocol_name="range"),
        member(ApiKey.SYNC_GROUP, "a group without members", group_id="committed", protocol_name="range"),
        member(ApiKey.HEARTBEAT, "an unknown group"),
        member(ApiKey.HEARTBEAT, "no group", group_id=""),
        member(ApiKey.HEARTBEAT, "a group without members", group_id="committed"),
        *(
            Case(
                f"LeaveGroup: {name}",
                ApiKey.LEAVE_GROUP,
                {"group_id": group, "members": [{"member_id": "m", "group_instance_id": instance}]},
            )
            for name, group, instance in (
                ("an unknown group", "missing", None),
                ("no group", "", None),
                ("an unknown member", "committed", None),
                ("an unknown instance", "committed", "i"),
            )
        ),
        Case("LeaveGroup: version 2", ApiKey.LEAVE_GROUP, {"group_id": "missing", "member_id": "m"}, 2),
        Case("LeaveGroup: no members", ApiKey.LEAVE_GROUP, {"group_id": "missing", "members": []}),
        Case("DescribeGroups: unknown", ApiKey.DESCRIBE_GROUPS, {"groups": ["missing"]}, 6),
        Case("DescribeGroups: unknown, version 5", ApiKey.DESCRIBE_GROUPS, {"groups": ["missing"]}, 5),
        Case("DescribeGroups: an empty name", ApiKey.DESCRIBE_GROUPS, {"groups": [""]}, 6),
        Case("DescribeGroups: without members", ApiKey.DESCRIBE_GROUPS, {"groups": ["committed"]}),
        Case("ListGroups: an unknown state", ApiKey.LIST_GROUPS, {"states_filter": ["Bored"]}),
        Case("ListGroups: an unknown type", ApiKey.LIST_GROUPS, {"types_filter": ["odd"]}),
        Case("ListGroups: a type", ApiKey.LIST_GROUPS, {"types_filter": ["CLASSIC"]}),
        Case("ListGroups: a state in lower case", ApiKey.LIST_GROUPS, {"states_filter": ["empty"]}),
        *(
            Case(f"OffsetDelete: {name}", ApiKey.OFFSET_DELETE, {"group_id": group, "topics": topics})
            for name, group, topics in (
                ("an unknown group", "missing", [{"name": APPENDED, "partitions": [{"partition_index": 0}]}]),
                ("no group", "", [{"name": APPENDED, "partitions": [{"partition_index": 0}]}]),
                ("an unknown topic", "committed", [{"name": "missing", "partitions": [{"partition_index": 0}]}]),
                ("an unknown partition", "committed", [{"name": APPENDED, "partitions": [{"partition_index": 9}]}]),
                ("without an offset", "committed", [{"name": APPENDED, "partitions": [{"partition_index": 1}]}]),
            )
        ),
        Case("DeleteGroups: unknown", ApiKey.DELETE_GROUPS, {"groups_names": ["missing"]}),
        Case("DeleteGroups: an empty name", ApiKey.DELETE_GROUPS, {"groups_names": [""]}),
        Case("DeleteGroups: the same twice", ApiKey.DELETE_GROUPS, {"groups_names": ["missing", "missing"]}),
    ]


def _live_group(names: Names) -> list[Case]:
    member = {"group_id": LIVE_GROUP, "generation_id": 1, "member_id": names.member_id, "group_instance_id": INSTANCE}
    wrong = {
        "another generation": {"generation_id": 7},
        "an unknown member": {"member_id": "m", "group_instance_id": None},
        "a fenced instance": {"member_id": "m"},
        "an unknown instance": {"group_instance_id": "i"},
    }
    protocol = {"protocol_type": "consumer", "protocol_name": "range"}
    offsets = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]

    def commit(fields: dict[str, Any]) -> dict[str, Any]:
        request = {**member, **fields, "topics": [{"name": APPENDED, "partitions": offsets}]}
        request["generation_id_or_member_epoch"] = request.pop("generation_id")
        return request

    def transactional(fields: dict[str, Any]) -> dict[str, Any]:
        producer = {
            "transactional_id": TRANSACTION,
            "producer_id": names.transactional_producer_id,
            "producer_epoch": 0,
        }
        return {**member, **fields, **producer, "topics": [{"name": APPENDED, "partitions": offsets}]}

    same = {"session_timeout_ms": 1_800_000, "group_id": LIVE_GROUP}
    return [
        *(
            case
            for name, fields in wrong.items()
            for case in (
                Case(f"Heartbeat: live, {name}", ApiKey.HEARTBEAT, {**member, **fields}),
                Case(f"SyncGroup: live, {name}", ApiKey.SYNC_GROUP, {**member, **protocol, **fields}),
                Case(f"OffsetCommit: live, {name}", ApiKey.OFFSET_COMMIT, commit(fields), 9),
                Case(f"TxnOffsetCommit: live, {name}", ApiKey.TXN_OFFSET_COMMIT, transactional(fields), 4),
            )
        ),
        Case("Heartbeat: live", ApiKey.HEARTBEAT, member),
        Case("SyncGroup: live", ApiKey.SYNC_GROUP, {**member, **protocol}),
        Case("SyncGroup: live, another type", ApiKey.SYNC_GROUP, {**member, **protocol, "protocol_type": "connect"}),
        Case("SyncGroup: live, another protocol", ApiKey.SYNC_GROUP, {**member, **protocol, "protocol_name": "x"}),
        Case(
            "OffsetCommit: live, no member",
            ApiKey.OFFSET_COMMIT,
            commit({"generation_id": -1, "member_id": "", "group_instance_id": None}),
            9,
        ),
        Case("OffsetCommit: live, valid", ApiKey.OFFSET_COMMIT, commit({}), 9),
        _join("live, another type", **same, protocol_type="connect", group_instance_id="other"),
        _join("live, another protocol", **same, protocols=[{"name": "x", "metadata": b""}], group_instance_id="other"),
        _join("live, an unknown member", **same, member_id="m"),
        _join("live, a fenced instance", **same, member_id="m", group_instance_id=INSTANCE),
        *(
            Case(
                f"LeaveGroup: live, {name}",
                ApiKey.LEAVE_GROUP,
                {"group_id": LIVE_GROUP, "members": [{"member_id": "m", "group_instance_id": instance}]},
            )
            for name, instance in (
                ("an unknown member", None),
                ("an unknown instance", "i"),
                ("a fenced instance", INSTANCE),
            )
        ),
        Case("DescribeGroups: live", ApiKey.DESCRIBE_GROUPS, {"groups": [LIVE_GROUP]}),
        Case("ListGroups: stable", ApiKey.LIST_GROUPS, {"states_filter": ["Stable"], "types_filter": ["classic"]}),
        Case("DeleteGroups: live", ApiKey.DELETE_GROUPS, {"groups_names": [LIVE_GROUP]}),
        Case(
            "OffsetDelete: live",
            ApiKey.OFFSET_DELETE,
            {"group_id": LIVE_GROUP, "topics": [{"name": APPENDED, "partitions": [{"partition_index": 0}]}]},
        ),
    ]


def _open_transaction(names: Names) -> list[Case]:
    identity = {"transactional_id": TRANSACTION, "producer_id": names.transactional_producer_id, "producer_epoch": 0}
    topics = [{"name": APPENDED, "partitions": [0]}]
    wrong = {
        "another producer id": {"producer_id": 99_999},
        "a newer epoch": {"producer_epoch": 5},
        "an older epoch": {"producer_epoch": -1},
    }

    def add(fields: dict[str, Any]) -> dict[str, Any]:
        old = {f"v3_and_below_{key}": value for key, value in {**identity, **fields}.items()}
        return {**old, "v3_and_below_topics": topics}

    return [
        *(
            case
            for name, fields in wrong.items()
            for case in (
                Case(f"AddPartitionsToTxn: {name}", ApiKey.ADD_PARTITIONS_TO_TXN, add(fields), 3),
                Case(f"AddOffsetsToTxn: {name}", ApiKey.ADD_OFFSETS_TO_TXN, {**identity, **fields, "group_id": "g"}, 3),
                Case(f"EndTxn: {name}", ApiKey.END_TXN, {**identity, **fields, "committed": True}, 4),
                Case(f"EndTxn: {name}, version 1", ApiKey.END_TXN, {**identity, **fields, "committed": True}, 1),
            )
        ),
        Case("EndTxn: no transaction", ApiKey.END_TXN, {**identity, "committed": True}, 4),
        Case("EndTxn: no transaction, aborted", ApiKey.END_TXN, {**identity, "committed": False}, 4),
        Case("AddPartitionsToTxn: valid", ApiKey.ADD_PARTITIONS_TO_TXN, add({}), 3),
        Case("DescribeTransactions: open", ApiKey.DESCRIBE_TRANSACTIONS, {"transactional_ids": [TRANSACTION]}),
        Case("ListTransactions: open", ApiKey.LIST_TRANSACTIONS, {"state_filters": ["Ongoing"]}),
        Case("ListTransactions: a pattern", ApiKey.LIST_TRANSACTIONS, {"transactional_id_pattern": "tr.*ion"}),
        Case("ListTransactions: long ones", ApiKey.LIST_TRANSACTIONS, {"duration_filter": 10_000_000}),
        Case("EndTxn: valid", ApiKey.END_TXN, {**identity, "committed": True}, 4),
    ]


def _sequences(names: Names) -> list[Case]:
    def case(name: str, sequence: int, epoch: int = 0, **more: Any) -> Case:
        records = _batch(
            (b"k", 0), (b"k", 0), producer_id=names.producer_id, producer_epoch=epoch, base_sequence=sequence, **more
        )
        data = {"name": COMPACTED, "partition_data": [{"index": 1, "records": records}]}
        return Case(f"Produce: {name}", ApiKey.PRODUCE, {"acks": -1, "timeout_ms": 10_000, "topic_data": [data]}, 11)

    return [
        case("the first sequence", 0),
        case("a duplicate", 0),
        case("a gap", 4),
        case("the next sequence", 2),
        case("a duplicate of the batch before", 0),
        case("an overlapping sequence", 1),
        case("a newer epoch that does not start at 0", 3, epoch=1),
        case("a newer epoch", 0, epoch=1),
        case("an older epoch", 4, epoch=0),
        Case(
            "DescribeProducers: one",
            ApiKey.DESCRIBE_PRODUCERS,
            {"topics": [{"name": COMPACTED, "partition_indexes": [1]}]},
        ),
    ]


def _transactions() -> list[Case]:
    def init(name: str, transactional_id: str | None, timeout_ms: int = 1000, version: int = 5, **fields: int) -> Case:
        request = {"transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms, **fields}
        return Case(f"InitProducerId: {name}", ApiKey.INIT_PRODUCER_ID, request, version)

    identity = {"transactional_id": "missing", "producer_id": 77, "producer_epoch": 0}
    old = {f"v3_and_below_{key}": value for key, value in identity.items()}
    topics = [{"name": APPENDED, "partitions": [0]}]
    offsets = [
        {
            "name": APPENDED,
            "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}],
        }
    ]
    return [
        init("an empty transactional id", ""),
        init("no timeout", "t", 0),
        init("a negative timeout", "t", -1),
        init("a long timeout", "t", 10_000_000),
        init("an unknown producer id", "unknown", producer_id=77, producer_epoch=3),
        init("a producer id without an epoch", "t", producer_id=77),
        init("a producer id, not transactional", None, producer_id=77, producer_epoch=3),
        Case(
            "AddPartitionsToTxn: an unknown id",
            ApiKey.ADD_PARTITIONS_TO_TXN,
            {**old, "v3_and_below_topics": topics},
            3,
        ),
        Case(
            "AddPartitionsToTxn: an unknown topic",
            ApiKey.ADD_PARTITIONS_TO_TXN,
            {**old, "v3_and_below_topics": [*topics, {"name": "missing", "partitions": [0]}]},
            3,
        ),
        Case(
            "AddPartitionsToTxn: an empty id",
            ApiKey.ADD_PARTITIONS_TO_TXN,
            {**old, "v3_and_below_transactional_id": "", "v3_and_below_topics": topics},
            3,
        ),
        Case("AddOffsetsToTxn: an unknown id", ApiKey.ADD_OFFSETS_TO_TXN, {**identity, "group_id": "g"}, 3),
        Case("AddOffsetsToTxn: an empty id", ApiKey.ADD_OFFSETS_TO_TXN, {**identity, "transactional_id": ""}, 3),
        Case("EndTxn: an unknown id", ApiKey.END_TXN, {**identity, "committed": True}, 4),
        Case("EndTxn: an unknown id, version 5", ApiKey.END_TXN, {**identity, "committed": True}, 5),
        Case("EndTxn: an empty id", ApiKey.END_TXN, {**identity, "transactional_id": "", "committed": True}, 4),
        Case(
            "TxnOffsetCommit: an unknown id",
            ApiKey.TXN_OFFSET_COMMIT,
            {**identity, "group_id": "committed", "topics": offsets},
            4,
        ),
        Case("TxnOffsetCommit: no group", ApiKey.TXN_OFFSET_COMMIT, {**identity, "group_id": "", "topics": offsets}, 4),
        Case("DescribeTransactions: unknown", ApiKey.DESCRIBE_TRANSACTIONS, {"transactional_ids": ["missing"]}),
        Case("DescribeTransactions: empty", ApiKey.DESCRIBE_TRANSACTIONS, {"transactional_ids": [""]}),
        Case("ListTransactions: an unknown state", ApiKey.LIST_TRANSACTIONS, {"state_filters": ["Bored"]}),
        Case("ListTransactions: a bad pattern", ApiKey.LIST_TRANSACTIONS, {"transactional_id_pattern": "["}),
        *(
            Case(
                f"DescribeProducers: {name}",
                ApiKey.DESCRIBE_PRODUCERS,
                {"topics": [{"name": topic, "partition_indexes": [partition]}]},
            )
            for name, topic, partition in (
                ("an unknown topic", "missing", 0),
                ("an unknown partition", APPENDED, 9),
                ("an invalid topic", "a b", 0),
            )
        ),
    ]


def _cluster() -> list[Case]:
    return [
        *(
            Case(f"DescribeCluster: endpoint type {kind}", ApiKey.DESCRIBE_CLUSTER, {"endpoint_type": kind})
            for kind in (1, 2, 9)
        ),
        Case(
            "DescribeLogDirs: an unknown topic",
            ApiKey.DESCRIBE_LOG_DIRS,
            {"topics": [{"topic": "missing", "partitions": [0]}]},
        ),
        Case("DescribeLogDirs: no topics", ApiKey.DESCRIBE_LOG_DIRS, {"topics": []}),
        Case(
            "AlterReplicaLogDirs: an unknown directory",
            ApiKey.ALTER_REPLICA_LOG_DIRS,
            {"dirs": [{"path": "/nowhere", "topics": [{"name": "missing", "partitions": [0]}]}]},
        ),
        Case("AlterReplicaLogDirs: no directories", ApiKey.ALTER_REPLICA_LOG_DIRS, {"dirs": []}),
        Case(
            "ApiVersions: a bad software name",
            ApiKey.API_VERSIONS,
            {"client_software_name": "-", "client_software_version": "1"},
        ),
    ]


def _security() -> list[Case]:
    anything = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    creation = {
        "resource_type": 2,
        "resource_name": PLAIN,
        "resource_pattern_type": 3,
        "principal": "User:alice",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return [
        *(
            case
            for version in (1, 3)
            for case in (
                Case(f"DescribeAcls: version {version}", ApiKey.DESCRIBE_ACLS, anything, version),
                Case(f"CreateAcls: version {version}", ApiKey.CREATE_ACLS, {"creations": [creation] * 2}, version),
                Case(f"DeleteAcls: version {version}", ApiKey.DELETE_ACLS, {"filters": [anything] * 2}, version),
            )
        ),
        Case("CreateAcls: none", ApiKey.CREATE_ACLS, {"creations": []}),
        Case("DeleteAcls: none", ApiKey.DELETE_ACLS, {"filters": []}),
    ]


def _quotas() -> list[Case]:
    def alter(name: str, entity: dict[str, str | None], validate_only: bool = True, **ops: float | None) -> Case:
        entry = {
            "entity": [{"entity_type": kind.replace("_", "-"), "entity_name": named} for kind, named in entity.items()],
            "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in ops.items()],
        }
        request = {"entries": [entry], "validate_only": validate_only}
        return Case(f"AlterClientQuotas: {name}", ApiKey.ALTER_CLIENT_QUOTAS, request)

    def describe(name: str, *components: tuple[str, int, str | None], strict: bool = False) -> Case:
        request = {
            "components": [{"entity_type": kind, "match_type": how, "match": match} for kind, how, match in components],
            "strict": strict,
        }
        return Case(f"DescribeClientQuotas: {name}", ApiKey.DESCRIBE_CLIENT_QUOTAS, request)

    exact, default, anything = range(3)
    rate = {"producer_byte_rate": 1e12}
    return [
        alter("valid quotas", {"user": "a"}, producer_byte_rate=1024.0, request_percentage=12.5),
        alter("nothing", {"user": "a"}),
        alter("no entity", {}, **rate),
        alter("an empty name", {"user": ""}, **rate),
        alter("an unknown type", {"group": "g"}, **rate),
        alter("a user and an address", {"user": "a", "ip": "10.0.0.1"}, connection_creation_rate=5.0),
        alter("no address", {"ip": "no address"}, connection_creation_rate=5.0),
        alter("an unknown key", {"user": "a"}, **{"retention.ms": 5.0}),
        alter("an unknown key to remove", {"user": "a"}, **{"retention.ms": None}),
        alter("a key of addresses", {"user": "a"}, connection_creation_rate=5.0),
        alter("a key of users", {"ip": "10.0.0.1"}, **rate),
        alter("a fraction", {"user": "a"}, producer_byte_rate=1.5),
        alter("an almost whole number", {"user": "a"}, producer_byte_rate=1.0000001),
        alter("a large number", {"ip": "10.0.0.1"}, connection_creation_rate=1e10),
        alter("a user", {"user": "a b"}, False, **rate),
        alter("a client id of a user", {"user": "a b", "client_id": None}, False, consumer_byte_rate=1e12),
        alter("an address", {"ip": "10.0.0.1"}, False, connection_creation_rate=1e6),
        describe("users", ("user", anything, None)),
        describe("only users", ("user", anything, None), strict=True),
        describe("a user", ("user", exact, "a b"), strict=True),
        describe("default client ids of a user", ("user", exact, "a b"), ("client-id", default, None)),
        describe("addresses", ("ip", anything, None)),
        describe("an unknown address", ("ip", exact, "10.0.0.9")),
        describe("an empty type", ("", anything, None)),
        describe("an unknown type", ("group", anything, None)),
        describe("a type twice", ("user", anything, None), ("user", exact, "a b")),
        describe("users and addresses", ("user", anything, None), ("ip", anything, None)),
        describe("an unknown match", ("user", 5, None)),
        alter("removal", {"user": "a b"}, False, producer_byte_rate=None),
        alter("removal of a client id's", {"user": "a b", "client_id": None}, False, consumer_byte_rate=None),
        alter("removal of an address's", {"ip": "10.0.0.1"}, False, connection_creation_rate=None),
        alter("removal of what is not set", {"user": "a b"}, False, producer_byte_rate=None),
    ]
