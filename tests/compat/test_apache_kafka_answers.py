"""The same invalid and unusual requests to Headrace and to Apache Kafka: every field of the responses is compared.

`INTENDED` lists each difference that is meant to be, with its reason. A difference that is not listed fails the test.
So does an entry that no longer differs.
"""

import re
import time
from typing import Any

import pytest
from tests.compat.test_apache_kafka_tables import NOT_DYNAMIC_HERE
from tests.support.apache_kafka.kafka_3_configs import is_not_in_kafka_4
from tests.support.broker.answers import Case, ask, differences
from tests.support.broker.bad_requests import (
    APPENDED,
    INSTANCE,
    LIVE_GROUP,
    NODE_ID,
    TOPICS,
    TRANSACTION,
    Names,
    all_cases,
)
from tests.support.broker.process import Broker, Headrace, Kafka, eventually
from tests.support.coordinator.groups import subscription
from tests.support.net.wire_client import WireClient

from headrace.broker.config.broker import BROKER_KEYS
from headrace.broker.config.kafka_only import DYNAMIC_WITHOUT_EFFECT, NO_EFFECT, REFUSED
from headrace.protocol import ApiKey
from headrace.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from headrace.protocol.messages.describe_groups import DescribeGroupsRequest
from headrace.protocol.messages.describe_transactions import DescribeTransactionsRequest
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from headrace.security.tls_keys import UNSUPPORTED

pytestmark = pytest.mark.timeout(180)

SETTINGS = {
    "node.id": NODE_ID,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
}
GROUP_ID_NOT_FOUND, TRANSACTIONAL_ID_NOT_FOUND = 69, 105

EVERYWHERE = {
    r"CreateTopics: .*topic_id: 'no id'": "a topic that is only validated gets no id, as with ZooKeeper",
    r"min\.insync\.replicas": "Kafka sets it for all brokers when it creates a cluster (eligible leader replicas)",
    r"\.synonyms: \[\{.*\], Kafka: \[\]": "defaults in coarser units (log.retention.hours) are listed as well",
}
"""Patterns of "case: difference", and the reason."""

ONE_SENTENCE = "one sentence for all requests that name another broker"
OWN_TIMESTAMP = "Kafka returns the batch's timestamp, which hides those of its records"
BETTER_CODE = "Kafka fails with an internal error (-1)"
ANSWERS_THE_REST = "the rest of the request is answered, too"
INTENDED = {
    "CreateTopics: many partitions in total": "the topics within the limit are created",
    "CreateTopics: 2 replicas": "there are no cordoned log directories",
    "CreateTopics: segment.bytes=1": "smaller segments are allowed, for tests",
    "CreateTopics: cleanup.policy=delete,delete": "a value that is named twice is stored once",
    "CreateTopics: cleanup.policy=compact,": "empty items of a list are ignored",
    "CreateTopics: leader.replication.throttled.replicas=everyone": "the message shows the value as it was given",
    "CreatePartitions: 10003 partitions": BETTER_CODE,
    "DescribeConfigs: the same topic twice": "a resource that the request repeats is described once",
    "DescribeConfigs: a logger of another broker": ONE_SENTENCE,
    "IncrementalAlterConfigs: another broker": ONE_SENTENCE,
    "IncrementalAlterConfigs: a broker that is no number": ONE_SENTENCE,
    "IncrementalAlterConfigs: a logger of another broker": ONE_SENTENCE,
    "IncrementalAlterConfigs: a logger without a broker": ONE_SENTENCE,
    "AlterConfigs: another broker": ONE_SENTENCE,
    "IncrementalAlterConfigs: an unknown operation": BETTER_CODE,
    "IncrementalAlterConfigs: an unknown broker config": "no plugin could use it, so it is a typing error",
    "IncrementalAlterConfigs: a config of one broker for all": "listeners cannot be changed dynamically yet",
    "AlterClientQuotas: a user and an address": "Kafka's sentence has a typing error",
    "AlterClientQuotas: no address": "host names are not supported",
    "Produce: a duplicate": OWN_TIMESTAMP,
    "Produce: a duplicate of the batch before": OWN_TIMESTAMP,
    "Fetch: a wrong isolation level": BETTER_CODE,
    "ListOffsets: the same partition twice": "each of the two gets the error",
    "Metadata: an id in version 10": ANSWERS_THE_REST,
    "Metadata: null name": ANSWERS_THE_REST,
    "Metadata: null name, version 10": ANSWERS_THE_REST,
}
"""Cases whose answers differ, and the reason."""

READS = re.compile("Describe|List")
PROPAGATION_SECONDS = 10.0


def address_of(broker: Broker) -> tuple[str, int]:
    host, port = broker.bootstrap.split(":")
    return host, int(port)


def prepare(address: tuple[str, int]) -> Names:
    """Creates the topics and both coordinators."""
    with WireClient(address) as client:
        topics = [
            CreatableTopic(
                name=name,
                num_partitions=2,
                replication_factor=1,
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
            )
            for name, configs in TOPICS.items()
        ]
        created = client.call(CreateTopicsRequest(topics=topics, timeout_ms=30_000)).topics
        assert [topic.error_code for topic in created] == [0] * len(TOPICS)
        for key_type in (0, 1):
            find = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["any"])
            eventually(lambda find=find: client.call(find).coordinators[0].error_code == 0, "there is a coordinator")
        groups, transactions = DescribeGroupsRequest(groups=["x"]), DescribeTransactionsRequest(transactional_ids=["x"])
        eventually(lambda: client.call(groups).groups[0].error_code == GROUP_ID_NOT_FOUND, "groups are loaded")
        eventually(
            lambda: client.call(transactions).transaction_states[0].error_code == TRANSACTIONAL_ID_NOT_FOUND,
            "transactions are loaded",
        )
        plain_producer = InitProducerIdRequest(transactional_id=None)
        eventually(lambda: client.call(plain_producer, 5).error_code == 0, "producer ids are available")
        producer_id = client.call(plain_producer, 5).producer_id
        transaction = InitProducerIdRequest(transactional_id=TRANSACTION, transaction_timeout_ms=600_000)
        transactional_producer_id = client.call(transaction, 5).producer_id
        member_id = join_live_group(client)
    return Names({topic.name: topic.topic_id for topic in created}, member_id, producer_id, transactional_producer_id)


def join_live_group(client: WireClient) -> str:
    """Creates a stable group with one static member. Returns its id."""
    protocols = [JoinGroupRequestProtocol(name="range", metadata=subscription(APPENDED))]
    joined = client.call(
        JoinGroupRequest(
            group_id=LIVE_GROUP,
            group_instance_id=INSTANCE,
            session_timeout_ms=1_800_000,
            rebalance_timeout_ms=1_800_000,
            protocol_type="consumer",
            protocols=protocols,
        )
    )
    assert (joined.error_code, joined.generation_id) == (0, 1)
    synced = client.call(
        SyncGroupRequest(
            group_id=LIVE_GROUP,
            generation_id=1,
            member_id=joined.member_id,
            group_instance_id=INSTANCE,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"everything")],
        )
    )
    assert synced.error_code == 0
    return str(joined.member_id)


def found_differences(case: Case, ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    return [
        line
        for line in differences(ours, theirs)
        if not any(re.search(pattern, f"{case.name} {line}") for pattern in EVERYWHERE)
    ]


def describe_broker(address: tuple[str, int]) -> dict[str, dict[str, Any]]:
    resource = {"resource_type": 4, "resource_name": str(NODE_ID), "configuration_keys": None}
    request = {"resources": [resource], "include_synonyms": True}
    (result,) = ask(address, Case("all broker configs", ApiKey.DESCRIBE_CONFIGS, request))["results"]
    configs: dict[str, dict[str, Any]] = result["configs"]
    return configs


@pytest.fixture(scope="module")
def comparison(apache_kafka: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Sends all requests to both brokers. Returns the differences by case, and the configs of Kafka's broker."""
    root = tmp_path_factory.mktemp("answers")
    with Headrace(root / "headrace", SETTINGS) as broker:
        address = address_of(broker)
        ours = {case.name: ask(address, case) for case in all_cases(prepare(address))}
    found: dict[str, list[str]] = {}
    with Kafka(root / "kafka", SETTINGS) as broker:
        address = address_of(broker)
        for case in all_cases(prepare(address)):
            lines = found_differences(case, ours[case.name], ask(address, case))
            deadline = time.monotonic() + PROPAGATION_SECONDS
            # Kafka's broker may learn of the change before this case only now.
            while lines and READS.match(case.name) and case.name not in INTENDED and time.monotonic() < deadline:
                lines = found_differences(case, ours[case.name], ask(address, case))
            if lines:
                found[case.name] = lines
        configs = describe_broker(address)
    return {"cases": ours.keys(), "differences": found, "broker configs": configs}


def test_answers_are_the_same(comparison: dict[str, Any]) -> None:
    unexpected = {case: lines for case, lines in comparison["differences"].items() if case not in INTENDED}
    shown = [f"{case}\n  " + "\n  ".join(lines[:5]) for case, lines in unexpected.items()]
    assert not unexpected, f"{len(unexpected)} of {len(comparison['cases'])} answers differ:\n" + "\n".join(shown)


def test_every_intended_difference_exists(comparison: dict[str, Any]) -> None:
    assert INTENDED.keys() - comparison["differences"].keys() == set()


def test_every_broker_config_of_kafka_is_known(comparison: dict[str, Any]) -> None:
    """Each one is supported, or `kafka_only` has the reason why it has no effect or is refused."""
    theirs = comparison["broker configs"]
    assert len(theirs) > 300
    assert theirs.keys() - BROKER_KEYS.keys.keys() - NO_EFFECT.keys() - REFUSED.keys() - UNSUPPORTED.keys() == set()
    not_in_kafka = {"log.initial.task.delay.ms", "producer.id.expiration.check.interval.ms"}  # internal ones there
    ours_only = {name for name in BROKER_KEYS.keys if name not in theirs and not name.startswith("headrace.")}
    assert {name for name in ours_only if not is_not_in_kafka_4(name)} == not_in_kafka


TYPES = {1: "boolean", 2: "string", 3: "int", 4: "int", 5: "long", 6: "double", 7: "list", 8: "string", 9: "password"}
OTHER_DEFAULTS = {
    "listener.security.protocol.map": "another order",
    "log.cleaner.io.max.bytes.per.second": "no limit in both",
    "log.dir": "the default is in log.dirs",
    "log.dirs": "headrace-data instead of /tmp/kafka-logs",
    "log.flush.interval.ms": "the same value, which Kafka takes from log.flush.scheduler.interval.ms",
    "log.flush.scheduler.interval.ms": "flush.ms of topics is checked every second",
    "principal.builder.class": "the default one has no name here",
    "queued.max.request.bytes": "limited by default",
    "sasl.kerberos.service.name": "the usual name",
    "socket.listen.backlog.size": "thousands of clients may connect at the same time",
    "socket.receive.buffer.bytes": "the system's buffer grows with the traffic",
    "socket.send.buffer.bytes": "another size is faster here",
    "ssl.keystore.type": "found by its content",
    "ssl.truststore.type": "found by its content",
}
STATIC_HERE = NOT_DYNAMIC_HERE


def test_broker_configs_have_kafkas_types_and_defaults(comparison: dict[str, Any]) -> None:
    theirs = comparison["broker configs"]
    both = [(key, theirs[key.name]) for key in BROKER_KEYS.keys.values() if key.name in theirs]
    assert len(both) > 90
    other_types = {key.name for key, config in both if TYPES[config["config_type"]] != key.type.value}
    assert other_types == set()
    static = {key.name for key, config in both if not key.dynamic and not config["read_only"]}
    assert static == STATIC_HERE
    assert {key.name for key, config in both if key.dynamic and config["read_only"]} == set()
    defaults = {
        key.name: next((synonym["value"] for synonym in config["synonyms"] if synonym["source"] == 5), None)
        for key, config in both
    }
    other_defaults = {key.name for key, _ in both if (key.format(key.default) or None) != (defaults[key.name] or None)}
    assert other_defaults - OTHER_DEFAULTS.keys() == set()


def test_dynamic_configs_without_effect_are_dynamic_in_kafka(comparison: dict[str, Any]) -> None:
    """Those of TLS and SASL are refused: whoever changes them relies on them."""
    theirs = comparison["broker configs"]
    dynamic = {name for name, config in theirs.items() if not config["read_only"] and name in NO_EFFECT}
    security = {name for name in dynamic if re.match(r"ssl\.|sasl\.|principal\.builder", name)}
    quotas = {name for name in DYNAMIC_WITHOUT_EFFECT if name not in theirs}
    assert dynamic - security == DYNAMIC_WITHOUT_EFFECT - quotas
    assert all(re.search(r"throttled\.rate|io\.max\.bytes\.per\.second", name) for name in quotas)
