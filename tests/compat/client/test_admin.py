"""The admin client with a broker in its own process, and with producers and consumers of another project.

Runs against Headrace, and with HEADRACE_COMPAT_BROKER=kafka against Apache Kafka.
"""

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from tests.support.broker.process import Broker, eventually
from tests.support.broker.records import START_MS
from tests.support.broker.under_test import REPLICAS, make_broker

import headrace
import headrace.aio
from headrace.admin import (
    AbortTransactionSpec,
    AlterConfigOp,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    IsolationLevel,
    MemberToRemove,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)
from headrace.client.errors import KafkaTimeoutError
from headrace.client.types import OffsetAndMetadata
from headrace.common.errors import (
    GroupIdNotFoundError,
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    KafkaError,
    NonEmptyGroupError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    TransactionalIdNotFoundError,
    UnknownMemberIdError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from headrace.common.ids import ZERO_UUID, Uuid
from headrace.common.types import TopicPartition

pytestmark = pytest.mark.timeout(240)

WEEK_MS = 7 * 24 * 3_600_000
_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    configs = {
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
    }
    with make_broker(tmp_path_factory.mktemp("admin") / "data", configs) as running:
        yield running


@pytest.fixture(scope="module")
def admin(broker: Broker) -> Iterator[headrace.Admin]:
    with headrace.Admin(bootstrap_servers=broker.bootstrap, client_id="the-admin") as made:
        yield made


@pytest.fixture
def name() -> str:
    return f"admin-{next(_numbers)}"


@pytest.fixture
def topic(admin: headrace.Admin, name: str) -> str:
    admin.create_topics([NewTopic(name, 3)])
    return name


def produce(broker: Broker, topic: str, count: int, partition: int = 0, timestamp: int = 0) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce(topic, b"value %d" % number, partition=partition, timestamp=timestamp and timestamp + number)
    assert producer.flush(60) == 0


def await_value(admin: headrace.Admin, topic: str, key: str, value: str) -> None:
    """Waits until a config has a value: Kafka's brokers apply a change after it was acknowledged."""
    resource = ConfigResource("topic", topic, [key])
    eventually(lambda: admin.describe_configs([resource])[resource][key] == value, f"{key} is {value}")


# ---- topics


def test_creates_describes_and_deletes_topic(admin: headrace.Admin, name: str) -> None:
    made = admin.create_topics(
        [NewTopic(name, 2, REPLICAS, topic_configs={"retention.ms": 5000, "cleanup.policy": "compact"})]
    )
    created = made[name]
    assert created.error is None
    assert (created.num_partitions, created.replication_factor) == (2, REPLICAS)
    assert created.topic_id != ZERO_UUID
    assert created.configs["retention.ms"].value == "5000"
    assert name in admin.list_topics()

    described = admin.describe_topics([name])[name]
    assert described.topic_id == created.topic_id
    assert [each.partition for each in described.partitions] == [0, 1]
    assert all(each.leader in each.isr and {*each.isr} == {*each.replicas} for each in described.partitions)
    assert all(len(each.replicas) == REPLICAS for each in described.partitions)
    assert not described.is_internal
    assert described.authorized_operations is None
    assert admin.describe_topics([created.topic_id])[created.topic_id].name == name

    assert admin.delete_topics([name])[name].error is None
    eventually(lambda: name not in admin.list_topics(), "the topic is gone")


def test_lists_all_topics(admin: headrace.Admin, topic: str) -> None:
    assert admin.describe_topics()[topic].name == topic


def test_create_topics_accepts_kafka_python_arguments(admin: headrace.Admin, name: str) -> None:
    admin.create_topics({name: {"num_partitions": 2, "configs": {"retention.ms": 7000}}, f"{name}-b": {}})
    admin.create_topics([f"{name}-c"])
    assert len(admin.describe_topics([name])[name].partitions) == 2
    assert set(admin.list_topics()) >= {name, f"{name}-b", f"{name}-c"}


def test_creates_topic_with_replica_assignment(admin: headrace.Admin, name: str) -> None:
    broker_id = min(each.id for each in admin.describe_cluster().brokers)
    admin.create_topics([NewTopic(name, replica_assignments={0: [broker_id], 1: [broker_id]})])
    assert len(admin.describe_topics([name])[name].partitions) == 2


def test_each_topic_has_its_own_error(admin: headrace.Admin, topic: str, name: str) -> None:
    wanted = [NewTopic(topic), NewTopic("not a name"), NewTopic(f"{name}-x", 0), NewTopic(f"{name}-y", 1, 99)]
    results = admin.create_topics([*wanted, NewTopic(f"{name}-z", 1)], raise_errors=False)
    assert isinstance(results[topic].error, TopicAlreadyExistsError)
    assert isinstance(results["not a name"].error, InvalidTopicError)
    assert isinstance(results[f"{name}-x"].error, InvalidPartitionsError)
    assert isinstance(results[f"{name}-y"].error, InvalidReplicationFactorError)
    assert results[f"{name}-z"].error is None
    assert set(results.errors) == {topic, "not a name", f"{name}-x", f"{name}-y"}

    with pytest.raises(TopicAlreadyExistsError, match=topic) as caught:
        admin.create_topics([topic])
    assert list(caught.value.results) == [topic]


def test_validation_only(admin: headrace.Admin, name: str) -> None:
    assert admin.create_topics([NewTopic(name, 2)], validate_only=True)[name].num_partitions == 2
    assert name not in admin.list_topics()
    with pytest.raises(InvalidConfigurationError):
        admin.create_topics([NewTopic(name, 2, topic_configs={"retention.ms": "soon"})], validate_only=True)


def test_missing_topics(admin: headrace.Admin, name: str) -> None:
    unknown = Uuid(int=12345)
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.describe_topics([name])
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([name])
    with pytest.raises(UnknownTopicIdError):
        admin.delete_topics([unknown])
    with pytest.raises(UnknownTopicIdError):
        admin.describe_topics([unknown])
    assert name not in admin.list_topics()


def test_deletes_topic_by_id(admin: headrace.Admin, topic: str) -> None:
    topic_id = admin.describe_topics([topic])[topic].topic_id
    assert admin.delete_topics([topic_id])[topic_id].name == topic
    eventually(lambda: topic not in admin.list_topics(), "the topic is gone")


def test_creates_partitions(admin: headrace.Admin, topic: str) -> None:
    admin.create_partitions({topic: 4}, validate_only=True)
    assert len(admin.describe_topics([topic])[topic].partitions) == 3
    admin.create_partitions({topic: NewPartitions(5)})
    eventually(lambda: len(admin.describe_topics([topic])[topic].partitions) == 5, "five partitions")
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions({topic: 2})


def test_describes_partitions_in_pages(admin: headrace.Admin, topic: str, name: str) -> None:
    admin.create_topics([NewTopic(f"{name}-other", 4)])
    results = admin.describe_topic_partitions([topic, f"{name}-other"], response_partition_limit=2)
    assert [each.partition for each in results[topic].partitions] == [0, 1, 2]
    assert [each.partition for each in results[f"{name}-other"].partitions] == [0, 1, 2, 3]
    assert results[topic].topic_id == admin.describe_topics([topic])[topic].topic_id
    results = admin.describe_topic_partitions([f"{name}-none"], raise_errors=False)
    assert isinstance(results[f"{name}-none"].error, UnknownTopicOrPartitionError)


def test_wait_for_topics_times_out(admin: headrace.Admin, topic: str, name: str) -> None:
    admin.wait_for_topics([topic])
    with pytest.raises(KafkaTimeoutError):
        admin.wait_for_topics([f"{name}-never"], timeout_ms=300)


# ---- partitions


def test_lists_offsets_by_spec_and_timestamp(admin: headrace.Admin, broker: Broker, topic: str) -> None:
    produce(broker, topic, 10, timestamp=START_MS)
    tp, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    offsets = admin.list_partition_offsets({tp: OffsetSpec.LATEST, empty: OffsetSpec.LATEST})
    assert (offsets[tp].offset, offsets[empty].offset) == (10, 0)
    assert offsets[tp].leader_epoch >= 0
    assert admin.list_partition_offsets({tp: OffsetSpec.EARLIEST})[tp].offset == 0
    found = admin.list_partition_offsets({tp: START_MS + 4}, IsolationLevel.READ_COMMITTED)[tp]
    assert (found.offset, found.timestamp) == (4, START_MS + 4)
    assert admin.list_partition_offsets({tp: START_MS + WEEK_MS})[tp].offset == -1
    newest = admin.list_partition_offsets({tp: OffsetSpec.MAX_TIMESTAMP})[tp]
    assert (newest.offset, newest.timestamp) == (9, START_MS + 9)


def test_offsets_of_missing_partitions(admin: headrace.Admin, topic: str, name: str) -> None:
    tps = [TopicPartition(topic, 0), TopicPartition(topic, 9), TopicPartition(f"{name}-none", 0)]
    offsets = admin.list_partition_offsets(dict.fromkeys(tps, OffsetSpec.LATEST), raise_errors=False)
    assert offsets[tps[0]].offset == 0
    assert isinstance(offsets[tps[1]].error, UnknownTopicOrPartitionError)
    assert isinstance(offsets[tps[2]].error, UnknownTopicOrPartitionError)
    assert list(offsets) == tps


def test_deletes_records(admin: headrace.Admin, broker: Broker, topic: str) -> None:
    produce(broker, topic, 10)
    produce(broker, topic, 5, partition=1)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    deleted = admin.delete_records({first: 4, second: -1})
    assert (deleted[first].low_watermark, deleted[second].low_watermark) == (4, 5)
    assert admin.list_partition_offsets({first: OffsetSpec.EARLIEST})[first].offset == 4
    results = admin.delete_records({first: 100, second: 5}, raise_errors=False)
    assert isinstance(results[first].error, OffsetOutOfRangeError)
    assert results[second].error is None


# ---- configs


def test_topic_configs(admin: headrace.Admin, topic: str) -> None:
    resource = ConfigResource("topic", topic)
    entries = admin.describe_configs([resource])[resource].entries
    assert entries["retention.ms"].value == "604800000"
    assert entries["retention.ms"].is_default
    assert entries["retention.ms"].type == "LONG"
    admin.alter_configs([ConfigResource("topic", topic, {"retention.ms": 1000, "cleanup.policy": ["compact"]})])
    await_value(admin, topic, "retention.ms", "1000")
    entry = admin.describe_configs([resource], include_synonyms=True)[resource].entries["retention.ms"]
    assert (entry.value, entry.source) == ("1000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert entry.synonyms[0].value == "1000"
    modified = admin.describe_configs([resource], config_filter="modified")[resource].entries
    assert {"retention.ms", "cleanup.policy"} <= set(modified)
    assert "segment.bytes" not in modified


def test_appends_and_subtracts_list_values(admin: headrace.Admin, topic: str) -> None:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, ["cleanup.policy"])

    def alter(op: AlterConfigOp, value: str | None, expected: str) -> None:
        admin.alter_configs([ConfigResource("topic", topic, {"cleanup.policy": (op, value)})])
        await_value(admin, topic, "cleanup.policy", expected)

    alter(AlterConfigOp.SET, "compact", "compact")
    alter(AlterConfigOp.APPEND, "delete", "compact,delete")
    alter(AlterConfigOp.SUBTRACT, "delete", "compact")
    alter(AlterConfigOp.DELETE, None, "delete")
    assert list(admin.describe_configs([resource])[resource].entries) == ["cleanup.policy"]


def test_resets_configs_to_defaults(admin: headrace.Admin, topic: str) -> None:
    resource = ConfigResource("topic", topic)
    admin.alter_configs([ConfigResource("topic", topic, {"retention.ms": 1000, "segment.bytes": 2_000_000})])
    await_value(admin, topic, "segment.bytes", "2000000")
    admin.reset_configs([ConfigResource("topic", topic, ["retention.ms"])])
    await_value(admin, topic, "retention.ms", "604800000")
    assert admin.describe_configs([resource])[resource].entries["retention.ms"].is_default
    assert admin.describe_configs([resource])[resource]["segment.bytes"] == "2000000"


def test_invalid_configs_have_their_own_errors(admin: headrace.Admin, topic: str, name: str) -> None:
    good = ConfigResource("topic", topic, {"retention.ms": 1000})
    bad = ConfigResource("topic", f"{name}-none", {"retention.ms": 1})
    results = admin.alter_configs([good, bad], validate_only=True, raise_errors=False)
    assert results[good].error is None
    assert isinstance(results[bad].error, UnknownTopicOrPartitionError)
    with pytest.raises(InvalidConfigurationError):
        admin.alter_configs([ConfigResource("topic", topic, {"retention.ms": "soon"})])
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.describe_configs([ConfigResource("topic", f"{name}-none")])
    assert admin.describe_configs([ConfigResource("topic", topic)])[good].entries["retention.ms"].is_default


def test_broker_configs(admin: headrace.Admin) -> None:
    broker_id = min(each.id for each in admin.describe_cluster().brokers)
    resource = ConfigResource("broker", str(broker_id))
    entries = admin.describe_configs([resource], include_documentation=True)[resource].entries
    assert entries["log.dirs"].is_read_only
    assert any(each.documentation for each in entries.values())
    dynamic = admin.describe_configs([resource], config_filter="dynamic")[resource].entries
    assert "log.dirs" not in dynamic
    assert dynamic


def test_lists_config_resources(admin: headrace.Admin, topic: str) -> None:
    assert ConfigResource("topic", topic) in admin.list_config_resources(["topic"])
    assert all(each.resource_type is ConfigResourceType.BROKER for each in admin.list_config_resources(["broker"]))


# ---- the cluster


def test_describes_cluster(admin: headrace.Admin, broker: Broker) -> None:
    cluster = admin.describe_cluster()
    assert {f"{each.host}:{each.port}" for each in cluster.brokers} == set(broker.bootstrap.split(","))
    assert cluster.cluster_id
    assert not any(each.is_fenced for each in cluster.brokers)
    assert cluster.controller_id >= 0
    assert admin.describe_cluster(include_authorized_operations=True).authorized_operations is not None
    versions = admin.api_versions()
    assert 9 in versions[0]
    assert isinstance(admin.describe_features(), dict)


def test_describes_log_directories(admin: headrace.Admin, broker: Broker, topic: str) -> None:
    produce(broker, topic, 3)
    tps = {TopicPartition(topic, number) for number in range(3)}
    # Kafka's brokers create the logs of a topic after metadata shows its leaders.
    broker_id = min(each.id for each in admin.describe_cluster().brokers)
    eventually(lambda: set(admin.describe_log_dirs([topic])[broker_id][0].replicas) == tps, "all logs")
    (described,) = admin.describe_log_dirs([topic])[broker_id]
    assert described.broker_id == broker_id
    assert described.error is None
    assert described.replicas[TopicPartition(topic, 0)].size > 0
    assert described.total_bytes > 0
    (only,) = admin.describe_log_dirs({topic: [1]})[broker_id]
    assert set(only.replicas) == {TopicPartition(topic, 1)}
    (everything,) = admin.describe_log_dirs()[broker_id]
    assert set(everything.replicas) >= tps


# ---- groups


class Member:
    """A group member of another project's client."""

    def __init__(self, broker: Broker, topic: str, group: str, **configs: Any):
        self.consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "client.id": "the-member",
                "enable.auto.commit": False,
                **{key.replace("_", "."): value for key, value in configs.items()},
            }
        )
        self.consumer.subscribe([topic])
        eventually(lambda: self.consumer.poll(0.1) is not None or len(self.consumer.assignment()) == 3, "assigned")

    def __enter__(self) -> "Member":
        return self

    def __exit__(self, *_: object) -> None:
        self.consumer.close()


def test_describes_group_with_member(admin: headrace.Admin, broker: Broker, topic: str) -> None:
    group = f"{topic}-group"
    with Member(broker, topic, group):
        eventually(lambda: admin.describe_groups([group])[group].state == "Stable", "the group is stable")
        described = admin.describe_groups([group], include_authorized_operations=True)[group]
        (member,) = described.members
        assert (described.protocol_type, described.protocol) == ("consumer", "range")
        assert member.client_id == "the-member"
        assert set(member.assignment) == {TopicPartition(topic, number) for number in range(3)}
        assert member.subscription == (topic,)
        assert described.coordinator is not None
        assert described.authorized_operations is not None
        listed = {each.group_id: each for each in admin.list_groups()}
        assert listed[group].state == "Stable"
        assert listed[group].type.lower() == "classic"
        assert group in {each.group_id for each in admin.list_groups(states_filter=["Stable"])}
        assert group not in {each.group_id for each in admin.list_groups(states_filter=["Empty"])}
        with pytest.raises(NonEmptyGroupError):
            admin.delete_groups([group])
    eventually(lambda: admin.describe_groups([group])[group].state == "Empty", "the group is empty")
    admin.delete_groups([group])
    assert group not in {each.group_id for each in admin.list_groups()}


def test_group_offsets(admin: headrace.Admin, broker: Broker, topic: str) -> None:
    group = f"{topic}-group"
    first, second, third = (TopicPartition(topic, number) for number in range(3))
    produce(broker, topic, 10, timestamp=START_MS)
    admin.alter_group_offsets(group, {first: OffsetAndMetadata(5, "five"), second: 0})
    offsets = admin.list_group_offsets(group)[group]
    assert offsets[first].offset == 5
    assert offsets[first].metadata == "five"
    assert set(offsets.offsets) == {first, second}
    some = admin.list_group_offsets({group: [first, third]})[group]
    assert set(some.offsets) == {first}

    admin.reset_group_offsets(group, {first: START_MS + 3, second: OffsetSpec.LATEST, third: START_MS + WEEK_MS})
    offsets = admin.list_group_offsets([group], require_stable=True)[group]
    assert [offsets[tp].offset for tp in (first, second, third)] == [3, 0, 0]

    admin.delete_group_offsets(group, [first, second])
    assert set(admin.list_group_offsets(group)[group].offsets) == {third}
    results = admin.alter_group_offsets(group, {third: 1, TopicPartition(f"{topic}-none", 0): 1}, raise_errors=False)
    assert results[third].error is None
    assert isinstance(results[TopicPartition(f"{topic}-none", 0)].error, UnknownTopicOrPartitionError)
    admin.delete_groups([group])


def test_refuses_to_alter_offsets_of_active_group(admin: headrace.Admin, broker: Broker, topic: str) -> None:
    group = f"{topic}-group"
    with Member(broker, topic, group):
        eventually(lambda: admin.describe_groups([group])[group].state == "Stable", "the group is stable")
        tp = TopicPartition(topic, 0)
        with pytest.raises(UnknownMemberIdError):
            admin.alter_group_offsets(group, {tp: 1})
        with pytest.raises(KafkaError):
            admin.delete_group_offsets(group, [tp])


def test_removes_members(admin: headrace.Admin, broker: Broker, topic: str) -> None:
    group = f"{topic}-group"
    member = Member(broker, topic, group, group_instance_id="static-one", session_timeout_ms=60_000)
    eventually(lambda: admin.describe_groups([group])[group].state == "Stable", "the group is stable")
    member.consumer.close()  # a static member that leaves temporarily
    assert len(admin.describe_groups([group])[group].members) == 1
    wrong = MemberToRemove(group_instance_id="static-two")
    right = MemberToRemove(group_instance_id="static-one", reason="it does not come back")
    results = admin.remove_group_members(group, [wrong, right], raise_errors=False)
    assert isinstance(results[wrong].error, UnknownMemberIdError)
    assert results[right].error is None
    eventually(lambda: admin.describe_groups([group])[group].state == "Empty", "the group is empty")

    with Member(broker, topic, group) as another:
        eventually(lambda: admin.describe_groups([group])[group].state == "Stable", "the group is stable")
        before = admin.describe_groups([group])[group].members[0].member_id
        assert len(admin.remove_group_members(group)) == 1
        eventually(
            lambda: (
                another.consumer.poll(0.1) is None
                and [each.member_id for each in admin.describe_groups([group])[group].members] not in ([], [before])
            ),
            "it has joined again",
        )


def test_missing_groups(admin: headrace.Admin, name: str) -> None:
    described = admin.describe_groups([name], raise_errors=False)[name]
    assert described.state == "Dead" or isinstance(described.error, GroupIdNotFoundError)
    with pytest.raises(GroupIdNotFoundError):
        admin.delete_groups([name])
    assert admin.list_group_offsets(name)[name].offsets == {}


# ---- transactions


def test_lists_and_describes_transactions(admin: headrace.Admin, broker: Broker, topic: str) -> None:
    transactional_id = f"{topic}-txn"
    tp = TopicPartition(topic, 0)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=0)
    assert producer.flush(60) == 0

    described = admin.describe_transactions([transactional_id])[transactional_id]
    assert described.state == "Ongoing"
    assert described.partitions == {tp}
    assert described.transaction_start_time_ms is not None
    listed = {each.transactional_id: each for each in admin.list_transactions(state_filters=["Ongoing"])}
    assert listed[transactional_id].producer_id == described.producer_id
    assert transactional_id in {each.transactional_id for each in admin.list_transactions(duration_filter_ms=0)}
    assert transactional_id in {
        each.transactional_id for each in admin.list_transactions(transactional_id_pattern=f"{topic}.*")
    }
    assert admin.list_transactions(producer_id_filters=[described.producer_id + 1000]) == []

    (state,) = admin.describe_producers([tp])[tp].producers
    assert state.producer_id == described.producer_id
    assert state.current_txn_start_offset == 0
    assert admin.list_partition_offsets({tp: OffsetSpec.LATEST}, "read_committed")[tp].offset == 0

    fenced = admin.fence_producers([transactional_id])[transactional_id]
    assert fenced.producer_id >= 0
    eventually(
        lambda: admin.describe_transactions([transactional_id])[transactional_id].state in ("CompleteAbort", "Empty"),
        "the transaction is aborted",
    )
    with pytest.raises(confluent_kafka.KafkaException):
        producer.commit_transaction(60)


def test_aborts_transaction_on_one_partition(admin: headrace.Admin, broker: Broker, topic: str) -> None:
    tp = TopicPartition(topic, 1)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"{topic}-hanging"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=1)
    assert producer.flush(60) == 0
    (state,) = admin.describe_producers([tp])[tp].producers
    spec = AbortTransactionSpec(tp, state.producer_id, state.producer_epoch, max(state.coordinator_epoch, 0))
    admin.abort_transaction(spec)
    assert admin.describe_producers([tp])[tp].producers[0].current_txn_start_offset == -1
    assert admin.list_partition_offsets({tp: OffsetSpec.LATEST}, "read_committed")[tp].offset == 2


def test_missing_transactions(admin: headrace.Admin, name: str) -> None:
    with pytest.raises(TransactionalIdNotFoundError):
        admin.describe_transactions([name])


# ---- asyncio


def test_asyncio_client(broker: Broker, name: str) -> None:
    async def main() -> None:
        async with headrace.aio.Admin({"bootstrap.servers": broker.bootstrap}) as admin:
            await admin.start()
            results = await asyncio.gather(*[admin.create_topics([f"{name}-{number}"]) for number in range(5)])
            assert [result.errors for result in results] == [{}] * 5
            assert f"{name}-3" in await admin.list_topics()

    asyncio.run(main())
