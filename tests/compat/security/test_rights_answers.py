"""A client without any rights gets the same answers from Headrace and from Apache Kafka 3.9, for every API.

Both brokers have an authorizer. The client authenticates as a user without ACLs, and sends requests about resources
that exist and about others. Every field of the responses is compared. `INTENDED` lists the differences.
"""

from collections.abc import Mapping
from typing import Any

import pytest
from tests.support.apache_kafka.broker import KafkaOnZooKeeper
from tests.support.broker.answers import CLOSED, build, differences, plain
from tests.support.broker.process import HOST, Headrace, eventually, free_port
from tests.support.broker.rights_cases import NODE_ID, UNKNOWN_ID, Resources, RightsCase, rights_cases
from tests.support.cluster.zookeeper import ZooKeeper
from tests.support.net.wire_client import ConnectionEnded, WireClient

from headrace.protocol import APIS, ApiKey
from headrace.protocol.messages.api_versions import ApiVersionsRequest
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest

pytestmark = pytest.mark.timeout(300)

Address = tuple[str, int]

ABSENT = Resources("absent", UNKNOWN_ID, "absent-group", "absent-transaction")
ONLY_IN_KAFKA_4 = "Kafka 3.9 with ZooKeeper does not know the type of the resource"
INTENDED = {
    "CREATE_PARTITIONS: version 0": "the sentence of the other APIs",
    "CREATE_PARTITIONS: version 3": "the sentence of the other APIs",
    "DESCRIBE_CLIENT_QUOTAS: a user": "an empty list instead of null",
    "DESCRIBE_USER_SCRAM_CREDENTIALS: a user": "the result names the user",
    "LIST_PARTITION_REASSIGNMENTS: one partition": "Kafka repeats the partitions of the request, without replicas",
    **{
        f"{api}: type {resource}": ONLY_IN_KAFKA_4
        for api in ("INCREMENTAL_ALTER_CONFIGS", "ALTER_CONFIGS")
        for resource in ("16 subscription", "32 secret-group")
    },
    "DESCRIBE_CONFIGS: type 32 secret-group": ONLY_IN_KAFKA_4,
}
"""The cases whose answers differ, and the reason."""
_INTERNAL = "'Request Request(processor="
"""Kafka's message for some APIs: its own objects."""


def settings(port: int, sasl_port: int) -> dict[str, object]:
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_eve="password";'
    listeners = f"PLAINTEXT://{HOST}:{port},SASL_PLAINTEXT://{HOST}:{sasl_port}"
    return {
        "broker.id": NODE_ID,
        "listeners": listeners,
        "advertised.listeners": listeners,
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": login,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
    }


def prepare(address: Address) -> Resources:
    """Creates the resources, as a super user."""
    with WireClient(address) as client:
        topic = CreatableTopic(name="secret", num_partitions=1, replication_factor=1)
        assert client.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 5).topics[0].error_code == 0
        for key_type in (0, 1):
            find = FindCoordinatorRequest(key_type=key_type, key="any")
            eventually(lambda find=find: client.call(find, 3).error_code == 0, "there is a coordinator")
        init = InitProducerIdRequest(transactional_id="secret-transaction", transaction_timeout_ms=60_000)
        eventually(lambda: client.call(init, 2).error_code == 0, "there is a transactional id")
        request = MetadataRequest(topics=[MetadataRequestTopic(name="secret")])
        eventually(lambda: client.call(request, 12).topics[0].error_code == 0, "the broker knows the topic")
        topic_id = client.call(request, 12).topics[0].topic_id
    return Resources("secret", topic_id, "secret-group", "secret-transaction")


def connect(address: Address) -> WireClient:
    client = WireClient(address)
    assert client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    authenticated = client.call(SaslAuthenticateRequest(auth_bytes=b"\0eve\0password"), 1)
    assert authenticated.error_code == 0, authenticated.error_message
    return client


def versions(address: Address) -> dict[int, tuple[int, int]]:
    with WireClient(address) as client:
        response = client.call(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)
    return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}


def ask(address: Address, case: RightsCase, served: Mapping[int, tuple[int, int]]) -> dict[str, Any] | None:
    """Returns the answer to a client without rights; None if Kafka does not serve the version."""
    key, version = case.case.key, case.case.version
    lowest, highest = served.get(key, (0, -1))
    version = highest if version is None else version
    if not lowest <= version <= highest:
        return None
    with connect(address) as client:
        try:
            return plain(client.call(build(APIS[key].request, case.case.request), version), version)
        except (TimeoutError, ConnectionEnded, ConnectionResetError):
            return dict(CLOSED)


def cases(resources: Resources) -> list[RightsCase]:
    return [*rights_cases(resources), *rights_cases(ABSENT)]


@pytest.fixture(scope="module")
def found(apache_kafka: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The differences by case. An empty list: the answers are the same."""
    root = tmp_path_factory.mktemp("rights")
    with ZooKeeper(root / "zookeeper") as zookeeper:
        port, sasl_port = free_port(), free_port()
        properties = {**settings(port, sasl_port), "zookeeper.connect": zookeeper.connect}
        with KafkaOnZooKeeper(root / "kafka", port, properties):
            served = versions((HOST, port))
            resources = prepare((HOST, port))
            theirs = [ask((HOST, sasl_port), case, served) for case in cases(resources)]
    port, sasl_port = free_port(), free_port()
    with Headrace(root / "headrace", settings(port, sasl_port), port):
        resources = prepare((HOST, port))
        ours = [ask((HOST, sasl_port), case, served) for case in cases(resources)]
    half = len(ours) // 2
    result: dict[str, list[str]] = {}
    for position, (case, our, their) in enumerate(zip(cases(resources), ours, theirs, strict=True)):
        if our is not None and their is not None:
            name = case.name if position < half else f"{case.name} (absent)"
            result[name] = [line for line in differences(our, their) if _INTERNAL not in line]
    return result


def test_answers_without_rights_are_the_same(found: dict[str, list[str]]) -> None:
    assert len(found) > 200
    assert {name.partition(":")[0] for name in found} >= {ApiKey.PRODUCE.name, ApiKey.LEADER_AND_ISR.name}
    unexpected = {name: lines for name, lines in found.items() if lines and _as_existing(name) not in INTENDED}
    shown = [f"{name}\n  " + "\n  ".join(lines[:5]) for name, lines in unexpected.items()]
    assert not unexpected, f"{len(unexpected)} of {len(found)} answers differ:\n" + "\n".join(shown)


def test_every_intended_difference_exists(found: dict[str, list[str]]) -> None:
    assert {name for name in INTENDED if not found[name]} == set()


def _as_existing(name: str) -> str:
    """Returns the name of the same case with resources that exist."""
    return name.removesuffix(" (absent)").replace("absent", "secret") if name.endswith(" (absent)") else name
