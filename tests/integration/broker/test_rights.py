"""Every API without and with the rights that it declares: Kafka's errors, nothing changed, nothing revealed."""

from collections.abc import Iterator, Set
from contextlib import contextmanager
from typing import Any

import pytest
from tests.support.broker.answers import Case, build
from tests.support.broker.rights_cases import NODE_ID, UNKNOWN_ID, Resources, RightsCase, batch, rights_cases
from tests.support.net.wire_client import ConnectionEnded, WireClient
from tests.support.security.sasl_broker import USERS, sasl_properties

from headrace.broker import handlers
from headrace.broker.apis import REGISTRY
from headrace.broker.required_rights import DENIED, OneOf
from headrace.common.principal import Principal
from headrace.protocol import APIS, ApiKey, Message
from headrace.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from headrace.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from headrace.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from headrace.protocol.messages.describe_transactions import DescribeTransactionsRequest
from headrace.protocol.messages.end_txn import EndTxnRequest
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.list_groups import ListGroupsRequest
from headrace.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.protocol.messages.list_transactions import ListTransactionsRequest
from headrace.protocol.messages.metadata import MetadataRequest
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from headrace.protocol.messages.produce import ProduceRequest, TopicProduceData
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest
from headrace.security.acls import Operation, Resource, ResourceType
from headrace.testing import EmbeddedBroker

Pair = tuple[Operation, ResourceType]

TOPIC_DENIED = 29
CODES = {error.code for error in DENIED.values()}
ERROR_FIELDS = ("error_code", "partition_error_code")
WITHOUT_RIGHTS = {
    ApiKey.API_VERSIONS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
}
NEW_TOPIC = {ApiKey.CREATE_TOPICS, ApiKey.METADATA, ApiKey.DELETE_TOPICS}
"""APIs that create or delete the topic: each of their requests needs its own."""
ALWAYS_DENIED = {"PRODUCE: a transaction of None", "ADD_PARTITIONS_TO_TXN: of a client, __consumer_offsets"}
"""Requests that no right allows."""


class RecordingAuthorizer:
    """Allows operations on resource types, and records what it is asked."""

    def __init__(self) -> None:
        self.changes = 0
        self.allowed: Set[Pair] | None = None
        """None: everything."""
        self.asked: list[Pair] = []
        self.attempts: list[Pair] = []
        """Without the questions that are not attempts."""
        self.names: list[str] = []

    def allow(self, allowed: Set[Pair] | None) -> None:
        self.allowed = allowed
        self.changes += 1

    def is_authorized(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource: Resource,
        *,
        audited: bool = True,
        request: str = "",
    ) -> bool:
        self.names.append(resource.name)
        if audited:
            self.attempts.append((operation, resource.type))
        return self._decide(operation, resource.type)

    def is_authorized_for_any(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        return self._decide(operation, resource_type)

    def _decide(self, operation: Operation, resource_type: ResourceType) -> bool:
        self.asked.append((operation, resource_type))
        return self.allowed is None or (operation, resource_type) in self.allowed


def connect(broker: EmbeddedBroker, user: str) -> WireClient:
    client = WireClient(broker.address)
    assert client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    token = f"\0{user}\0{USERS[user]}".encode()
    assert client.call(SaslAuthenticateRequest(auth_bytes=token), 2).error_code == 0
    return client


class Setup:
    def __init__(self, broker: EmbeddedBroker):
        self.broker = broker
        self.authorizer = RecordingAuthorizer()
        self.client = connect(broker, "alice")
        self._new_topics = 0
        broker.call(lambda running: setattr(running.dispatcher, "authorizer", self.authorizer))
        self.secret = self._prepare("secret")
        self.absent = Resources("absent", UNKNOWN_ID, "absent-group", "absent-transaction")
        with connect(broker, "bob") as other:
            assert other.call(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1)).error_code == 0

    def _prepare(self, name: str) -> Resources:
        group, transactional_id = f"{name}-group", f"{name}-transaction"
        topic_id = self.create_topic(name)
        for key_type in (0, 1):
            found = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[group])
            while self.client.call(found).coordinators[0].error_code:
                pass
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")
        commit = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            topics=[OffsetCommitRequestTopic(name=name, partitions=[partition])],
        )
        assert self.client.call(commit, 9).topics[0].partitions[0].error_code == 0
        produced = Case("", ApiKey.PRODUCE, {"acks": -1, "timeout_ms": 1000, "topic_data": [_data(name)]}, 12)
        assert self.send(produced).responses[0].partition_responses[0].error_code == 0
        init = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        while self.client.call(init, 5).error_code:
            pass
        return Resources(name, topic_id, group, transactional_id)

    def create_topic(self, name: str) -> Any:
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        created = self.client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000)).topics[0]
        assert created.error_code == 0
        return created.topic_id

    def for_success(self, key: ApiKey) -> Resources:
        """Returns resources with which a request can succeed."""
        if key is ApiKey.DELETE_GROUPS:
            return self.secret._replace(group="other-group")
        if key not in NEW_TOPIC:
            return self.secret
        self._new_topics += 1
        name = f"new-{self._new_topics}"
        topic_id = self.create_topic(name) if key is ApiKey.DELETE_TOPICS else UNKNOWN_ID
        return self.secret._replace(topic=name, topic_id=topic_id)

    @contextmanager
    def only(self, allowed: Set[Pair]) -> Iterator[None]:
        self.authorizer.allow(allowed)
        self.authorizer.asked.clear()
        self.authorizer.attempts.clear()
        self.authorizer.names.clear()
        try:
            yield
        finally:
            self.authorizer.allow(None)

    def send(self, case: Case) -> Any:
        api = APIS[case.key]
        version = min(api.last_version, REGISTRY[case.key].highest) if case.version is None else case.version
        return self.client.call(build(api.request, case.request), version)

    def state(self) -> list[str]:
        """Everything that a request could change."""
        latest = ListOffsetsPartition(partition_index=0, timestamp=-1)
        earliest = ListOffsetsPartition(partition_index=0, timestamp=-2)
        resources = [
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
            for kind, name in ((2, "secret"), (4, ""), (32, "secret-group"), (16, "subscription"))
        ]
        requests: list[tuple[Message, int]] = [
            (MetadataRequest(topics=None), 12),
            (ListOffsetsRequest(topics=[ListOffsetsTopic(name="secret", partitions=[latest])]), 7),
            (ListOffsetsRequest(topics=[ListOffsetsTopic(name="secret", partitions=[earliest])]), 7),
            (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="secret-group", topics=None)]), 9),
            (ListGroupsRequest(), 4),
            (ListTransactionsRequest(), 0),
            (DescribeConfigsRequest(resources=resources), 4),
            (DescribeClientQuotasRequest(components=[]), 1),
            (DescribeDelegationTokenRequest(owners=None), 3),
        ]
        return [repr(self.client.call(request, version)) for request, version in requests]


def _data(topic: str, records: bytes | None = None) -> dict[str, Any]:
    return {"name": topic, "partition_data": [{"index": 0, "records": records or batch()}]}


@pytest.fixture(scope="module")
def setup() -> Iterator[Setup]:
    properties = {
        **sasl_properties(),
        "node.id": NODE_ID,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
        "delegation.token.secret.key": "key",
    }
    with EmbeddedBroker(properties) as broker:
        setup = Setup(broker)
        with setup.client:
            yield setup


NAMES = [each.name for each in rights_cases(Resources("secret", UNKNOWN_ID, "secret-group", "secret-transaction"))]


def named(resources: Resources, position: int) -> RightsCase:
    return rights_cases(resources)[position]


def declared(key: ApiKey) -> set[Pair]:
    return {pair for one_of in REGISTRY[key].needs.all_of for pair in pairs(one_of)}


def pairs(one_of: OneOf) -> set[Pair]:
    return {(right.operation, right.resource) for right in one_of.rights}


def codes_of(message: Message) -> set[int]:
    """Returns all error codes of a response. Checks that everything has one, or contains something that has."""
    own = {getattr(message, name) for name in ERROR_FIELDS if hasattr(message, name)} - {0}
    nested: set[int] = set()
    for field in type(message).__fields__:
        if field.struct is not None and field.is_array:
            for item in getattr(message, field.name) or ():
                nested |= codes_of(item)
    return own | nested


def assert_complete(message: Message) -> None:
    """Checks that everything with an error code has an error, or contains only things that have one."""
    has_error = any(getattr(message, name, 0) for name in ERROR_FIELDS)
    items = [
        item
        for field in type(message).__fields__
        if field.struct is not None and field.is_array and field.name not in ("brokers", "node_endpoints")
        for item in getattr(message, field.name) or ()
    ]
    assert has_error or items or not any(hasattr(message, name) for name in ERROR_FIELDS), message
    if not has_error:
        for item in items:
            assert_complete(item)


def _bytes(response: Any) -> Any:
    """Replaces the views of records, which have no useful repr."""
    for topic in response.responses if isinstance(response, FetchResponse) else ():
        for partition in topic.partitions:
            records: Any = partition.records
            partition.records = bytes(records or b"")
    return response


def is_empty(case: Case) -> bool:
    """Returns True for a request whose response has no errors: it leaves out what the client may not see."""
    return (
        (
            "all" in case.name
            and case.key not in (ApiKey.OFFSET_FETCH, ApiKey.LIST_PARTITION_REASSIGNMENTS, ApiKey.LIST_CONFIG_RESOURCES)
        )
        or case.key is ApiKey.DESCRIBE_CLUSTER
        or (case.key is ApiKey.DESCRIBE_LOG_DIRS and (case.version or 0) < 3)
    )


def test_every_api_that_requires_rights_has_a_case() -> None:
    handlers.load()
    tested = {each.case.key for each in rights_cases(Resources("t", UNKNOWN_ID, "g", "x"))}
    assert {api.key for api in REGISTRY.values()} - WITHOUT_RIGHTS == tested
    for key in WITHOUT_RIGHTS & set(REGISTRY):
        assert REGISTRY[key].needs.reason


@pytest.mark.parametrize("position", range(len(NAMES)), ids=NAMES)
def test_without_rights(setup: Setup, position: int) -> None:
    secret, absent = named(setup.secret, position), named(setup.absent, position)
    case = secret.case
    before = setup.state()
    with setup.only(frozenset()):
        response = setup.send(case)
        attempts = set(setup.authorizer.attempts)
        response_for_absent = setup.send(absent.case)
    assert setup.state() == before
    assert attempts <= declared(case.key)
    if is_empty(case):
        assert codes_of(response) == set()
    else:
        assert codes_of(response) <= CODES
        assert codes_of(response)
        if case.key is not ApiKey.METADATA:
            assert_complete(response)
    # Nothing is revealed: neither an id to who knows the name, nor the name to who knows the id, nor that it exists.
    if secret.by_id:
        assert "'secret'" not in repr(response)
    else:
        assert str(setup.secret.topic_id) not in repr(response)
        assert repr(_bytes(response)).replace("secret", "absent") == repr(_bytes(response_for_absent))


@pytest.mark.parametrize("position", range(len(NAMES)), ids=NAMES)
def test_with_exactly_the_declared_rights(setup: Setup, position: int) -> None:
    key = named(setup.secret, position).case.key
    needs = REGISTRY[key].needs.all_of
    case = named(setup.for_success(key), position).case
    with setup.only(declared(key)):
        response = setup.send(case)
        asked = set(setup.authorizer.asked)
        assert set(setup.authorizer.attempts) <= declared(key)
    assert bool(codes_of(response) & CODES) == (case.name in ALWAYS_DENIED), response
    for one_of in needs:
        if not pairs(one_of) & asked:
            continue  # not needed by this request
        for pair in pairs(one_of):
            alternative = named(setup.for_success(key), position).case
            with setup.only(declared(key) - pairs(one_of) | {pair}):
                codes = codes_of(setup.send(alternative)) & CODES
                if case.name not in ALWAYS_DENIED:
                    assert not codes, f"{pair} alone must be enough"
        denied = named(setup.for_success(key), position).case
        with setup.only(declared(key) - pairs(one_of)):
            without = setup.send(denied)
        expected = DENIED[one_of.rights[-1].resource].code
        if one_of.without == DENIED[one_of.rights[-1].resource].name and not is_empty(case):
            assert codes_of(without) & CODES == {expected}, without
        else:  # TOPIC_AUTHORIZATION_FAILED as follower or by id, left out, no operations
            assert codes_of(without) & CODES in (set(), {TOPIC_DENIED}), without


def test_every_declared_right_is_checked(setup: Setup) -> None:
    """With the rights that are left of alternatives, all declared rights are asked for by some request."""
    asked: dict[ApiKey, set[Pair]] = {}
    for position in range(len(NAMES)):
        for last_only in (False, True):
            case = named(setup.absent._replace(topic="secret"), position).case
            needs = REGISTRY[case.key].needs.all_of
            if case.key in NEW_TOPIC:
                case = named(setup.for_success(case.key), position).case
            allowed = {
                (right.operation, right.resource)
                for one_of in needs
                for right in (one_of.rights[-1:] if last_only else one_of.rights[:1])
            }
            with setup.only(allowed):
                setup.send(case)
                asked.setdefault(case.key, set()).update(setup.authorizer.asked)
    missing = {key.name: declared(key) - pairs for key, pairs in asked.items() if declared(key) - pairs}
    # A transaction with partitions is tested by `test_topics_in_a_transaction`.
    assert missing == {"DESCRIBE_TRANSACTIONS": {(Operation.DESCRIBE, ResourceType.TOPIC)}}


def test_topics_in_a_transaction(setup: Setup) -> None:
    """DescribeTransactions leaves out the topics that the client may not describe."""
    client, name = setup.client, "secret-topics"
    init = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    producer = client.call(init, 5)
    topics = [AddPartitionsToTxnTopic(name="secret", partitions=[0])]
    added = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=topics,
    )
    result = client.call(added, 3).results_by_topic_v3_and_below[0].results_by_partition[0]
    assert result.partition_error_code == 0
    describe = DescribeTransactionsRequest(transactional_ids=[name])
    assert [topic.topic for topic in client.call(describe).transaction_states[0].topics] == ["secret"]
    with setup.only({(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)}):
        state = client.call(describe).transaction_states[0]
    assert (state.error_code, state.transaction_state, state.topics) == (0, "Ongoing", [])
    end = EndTxnRequest(
        transactional_id=name, producer_id=producer.producer_id, producer_epoch=producer.producer_epoch, committed=False
    )
    assert client.call(end, 3).error_code == 0


READ_TOPIC: Pair = (Operation.READ, ResourceType.TOPIC)


def fetch_in_session(setup: Setup, session_id: int, epoch: int, topics: list[FetchTopic]) -> FetchResponse:
    request = FetchRequest(
        min_bytes=0, max_bytes=1000, max_wait_ms=0, session_id=session_id, session_epoch=epoch, topics=topics
    )
    response = setup.client.call(request, 13)
    assert isinstance(response, FetchResponse)
    return response


def test_a_revoked_right_takes_effect_in_a_fetch_session(setup: Setup) -> None:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    topics = [FetchTopic(topic_id=setup.secret.topic_id, partitions=[partition])]

    def codes(response: FetchResponse) -> list[int]:
        return [partition.error_code for topic in response.responses for partition in topic.partitions]

    with setup.only({READ_TOPIC}):
        opened = fetch_in_session(setup, 0, 0, topics)
        assert codes(opened) == [0]
    with setup.only(set()):
        denied = fetch_in_session(setup, opened.session_id, 1, [])
        assert codes(denied) == [TOPIC_DENIED]
        assert not denied.responses[0].partitions[0].records
    with setup.only({READ_TOPIC}):
        allowed = fetch_in_session(setup, opened.session_id, 2, [])
    assert codes(allowed) == [0]
    assert allowed.responses[0].partitions[0].records


def test_a_follower_without_the_right_gets_no_privileged_session(setup: Setup) -> None:
    """Followers' sessions evict those of consumers: a client cannot pose as a follower for that."""
    follower = {"session_id": 0, "session_epoch": 0, "replica_id": 2, "min_bytes": 0, "max_wait_ms": 0}
    with setup.only(set()):
        denied = setup.send(Case("", ApiKey.FETCH, follower, 12))
    allowed = setup.send(Case("", ApiKey.FETCH, follower, 12))
    sessions = setup.broker.call(lambda running: running.fetch_sessions._sessions)
    assert not sessions[denied.session_id].privileged
    assert sessions[allowed.session_id].privileged


@pytest.mark.parametrize("version", [9, 13])
def test_the_fast_path_of_produce_respects_rights(setup: Setup, version: int) -> None:
    """Its cache of decisions is valid until a decision changes."""
    identity = {"topic_id": setup.secret.topic_id} if version >= 13 else {"name": "secret"}
    data = {**identity, "partition_data": [{"index": 0, "records": batch()}]}
    request = Case("", ApiKey.PRODUCE, {"acks": 1, "timeout_ms": 1000, "topic_data": [data]}, version)

    def produce() -> tuple[int, int]:
        before = len(setup.authorizer.asked)
        response = setup.send(request).responses[0].partition_responses[0]
        return response.error_code, len(setup.authorizer.asked) - before

    with setup.only({(Operation.WRITE, ResourceType.TOPIC)}):
        assert [produce() for _ in range(3)] == [(0, 1), (0, 0), (0, 0)]
    with setup.only(set()):
        assert [produce() for _ in range(2)] == [(TOPIC_DENIED, 1)] * 2
    with setup.only({(Operation.WRITE, ResourceType.TOPIC)}):
        assert [produce() for _ in range(2)] == [(0, 1), (0, 0)]


def test_an_unauthorized_produce_without_acks_closes_the_connection(setup: Setup) -> None:
    request = ProduceRequest(acks=0, timeout_ms=1000, topic_data=[build(TopicProduceData, _data("secret"))])
    before = setup.state()
    with setup.only(set()), connect(setup.broker, "alice") as client:
        client.send(request, 12)
        with pytest.raises(ConnectionEnded):
            client.receive_frame()
    assert setup.state() == before
