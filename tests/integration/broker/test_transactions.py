"""Transactions over a socket: every version, rejected requests, restarts between any two steps, read_committed."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.broker.admin_calls import BROKER, DELETE, SET, alter_configs
from tests.support.net.wire_calls import NAMED, batch, fetch, produce, produce_request
from tests.support.net.wire_client import WireClient

from headrace.broker.config.coordinators import TRANSACTION_TOPIC
from headrace.broker.server import Broker
from headrace.coordinator.partitioner import partition_for
from headrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from headrace.protocol.messages.api_versions import ApiVersionsRequest
from headrace.protocol.messages.describe_transactions import DescribeTransactionsRequest
from headrace.protocol.messages.end_txn import EndTxnRequest
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.protocol.messages.list_transactions import ListTransactionsRequest
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from headrace.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from headrace.records import decode_rows, split_batches
from headrace.testing import EmbeddedBroker

FEW = {"transaction.state.log.num.partitions": 3, "offsets.topic.num.partitions": 3}
TIMEOUT_MS = 60_000
INIT_VERSION, ADD_VERSION, END_VERSION = 5, 3, 4
INVALID_REQUEST, INVALID_TXN_STATE, MAPPING, TIMEOUT, BUSY = 42, 48, 49, 50, 51
NOT_LEADER, NOT_COORDINATOR, OUT_OF_ORDER, NOT_AUTHORIZED = 6, 16, 45, 53
UNKNOWN_TOPIC, NOT_ATTEMPTED, INVALID_EPOCH, FENCED, NOT_FOUND, ABORTABLE = 3, 55, 47, 90, 105, 120


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(FEW, topics={"t": 3}) as broker:
        with WireClient(broker.address) as client:
            client.call(FindCoordinatorRequest(key_type=1, coordinator_keys=["any"]), 4)
        yield broker


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[WireClient]:
    with WireClient(broker.address) as client:
        yield client


class Producer:
    """A transactional producer whose requests the test chooses."""

    def __init__(self, client: WireClient, name: str) -> None:
        self.client = client
        self.name = name
        self.id, self.epoch, self.sequence = -1, -1, 0

    def init(self, version: int = INIT_VERSION, timeout_ms: int = TIMEOUT_MS, **options: Any) -> int:
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=timeout_ms, **options)
        reply = self.client.call(request, version)
        if reply.error_code == 0:
            self.id, self.epoch, self.sequence = reply.producer_id, reply.producer_epoch, 0
        return int(reply.error_code)

    def add(
        self, *partitions: int, topic: str = "t", version: int = ADD_VERSION, verify_only: bool = False
    ) -> list[int]:
        topics = [AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))]
        if version < 4:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=self.id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=topics,
            )
            (found,) = self.client.call(request, version).results_by_topic_v3_and_below
        else:
            one = AddPartitionsToTxnTransaction(
                transactional_id=self.name,
                producer_id=self.id,
                producer_epoch=self.epoch,
                topics=topics,
                verify_only=verify_only,
            )
            (result,) = self.client.call(AddPartitionsToTxnRequest(transactions=[one]), version).results_by_transaction
            (found,) = result.topic_results
        return [each.partition_error_code for each in found.results_by_partition]

    def write(self, value: bytes, partition: int = 0, version: int = 11) -> int:
        data = batch(
            value, producer_id=self.id, producer_epoch=self.epoch, base_sequence=self.sequence, transactional=True
        )
        request = produce_request(data, partition=partition, acks=-1)
        request.transactional_id = self.name
        ((reply,),) = (topic.partition_responses for topic in self.client.call(request, version).responses)
        if reply.error_code == 0:
            self.sequence += 1
        return int(reply.error_code)

    def end(self, commit: bool = True, version: int = END_VERSION) -> int:
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=self.id, producer_epoch=self.epoch, committed=commit
        )
        reply = self.client.call(request, version)
        if version >= 5 and reply.error_code == 0:
            self.id, self.epoch, self.sequence = reply.producer_id, reply.producer_epoch, 0
        return int(reply.error_code)

    def state(self) -> str:
        (found,) = self.client.call(DescribeTransactionsRequest(transactional_ids=[self.name]), 0).transaction_states
        return str(found.transaction_state)


def stable_end(client: WireClient, partition: int = 0) -> tuple[int, int]:
    """Returns the last stable offset and the high watermark."""
    found = fetch(client, 0, partition=partition, isolation_level=1)
    return found.last_stable_offset, found.high_watermark


@pytest.mark.parametrize("version", range(6))
def test_init_producer_id_in_every_version(client: WireClient, version: int) -> None:
    producer = Producer(client, f"init-{version}")
    assert producer.init(version) == 0
    first = producer.id, producer.epoch
    assert producer.init(version) == 0
    assert (producer.id, producer.epoch) == (first[0], 1)
    if version >= 3:
        asked = {"producer_id": producer.id, "producer_epoch": 0}
        assert producer.init(version, **asked) == (FENCED if version >= 4 else INVALID_EPOCH)
        asked["producer_epoch"] = 1
        assert producer.init(version, **asked) == 0
        assert producer.epoch == 2


@pytest.mark.parametrize("version", range(6))
def test_add_partitions_and_end_txn_in_every_version(client: WireClient, version: int) -> None:
    producer = Producer(client, f"add-{version}")
    producer.init()
    for commit in (True, False):
        assert producer.add(0, 1, version=version) == [0, 0]
        assert producer.write(b"x") == 0
        before, end = stable_end(client)
        assert before < end
        assert producer.end(commit, version) == 0
        assert stable_end(client) == (end + 1, end + 1)
    producer.epoch += 5
    assert producer.add(0, version=version) == [FENCED if version >= 2 else INVALID_EPOCH]
    assert producer.end(version=version) == (FENCED if version >= 2 else INVALID_EPOCH)
    producer.id += 5000
    assert producer.add(0, version=version) == [MAPPING]


def test_each_transaction_has_its_own_epoch(client: WireClient) -> None:
    producer = Producer(client, "own epochs")
    producer.init()
    for epoch in range(3):
        assert producer.epoch == epoch
        assert producer.write(b"added on the way", partition=2, version=12) == 0
        assert producer.end(version=5) == 0


def test_announces_transaction_version_2(client: WireClient) -> None:
    for version in range(5):
        reply = client.call(ApiVersionsRequest(client_software_name="x", client_software_version="1"), version)
        assert [(each.name, each.min_version, each.max_version) for each in reply.supported_features] == (
            [("transaction.version", 0, 2)] if version >= 4 else []
        )
        assert [(each.name, each.max_version_level) for each in reply.finalized_features] == (
            [("transaction.version", 2)] if version >= 3 else []
        )
        assert (reply.finalized_features_epoch >= 0) is (version >= 3)


def test_refuses_a_first_batch_with_a_later_sequence(client: WireClient) -> None:
    """If Produce adds partitions itself, a batch that overtook the first one would otherwise begin the transaction."""
    producer = Producer(client, "overtaken")
    producer.init()
    producer.sequence = 1
    assert producer.write(b"second", partition=2, version=12) == OUT_OF_ORDER
    producer.sequence = 0
    assert [producer.write(value, partition=2, version=12) for value in (b"first", b"second")] == [0, 0]
    assert producer.end(version=5) == 0


def test_late_marker_does_not_end_the_next_transaction(client: WireClient) -> None:
    """The marker has the epoch of the next transaction, if each transaction has its own epoch."""
    producer = Producer(client, "late marker")
    producer.init()
    group = "late-marker"
    client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4)
    for number in range(2):
        assert producer.write(b"x", partition=2, version=12) == 0
        assert commit_offset(producer, group, number, 5) == 0
        if number == 0:
            assert producer.end(version=5) == 0
    index = partition_for(group, FEW["offsets.topic.num.partitions"])
    marker = WritableTxnMarker(
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        transaction_result=True,
        topics=[
            WritableTxnMarkerTopic(name="t", partition_indexes=[2]),
            WritableTxnMarkerTopic(name="__consumer_offsets", partition_indexes=[index]),
        ],
        transaction_version=2,
    )
    (found,) = client.call(WriteTxnMarkersRequest(markers=[marker]), 2).markers
    assert [topic.partitions[0].error_code for topic in found.topics] == [INVALID_EPOCH, INVALID_EPOCH]
    assert producer.end(commit=False, version=5) == 0
    assert offsets(client, group) == (0, 0)


def test_last_stable_offset_for_read_committed(client: WireClient) -> None:
    """They end at the first open transaction, also in lookups by timestamp."""
    producer = Producer(client, "listed")
    producer.init()
    producer.add(1)
    _, end = stable_end(client, 1)
    producer.write(b"open", 1)

    def listed(timestamp: int, isolation_level: int) -> int:
        asked = ListOffsetsPartition(partition_index=1, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation_level,
            topics=[ListOffsetsTopic(name="t", partitions=[asked])],
        )
        ((found,),) = (topic.partitions for topic in client.call(request, 7).topics)
        assert found.error_code == 0
        return int(found.offset)

    (since,) = (
        each.timestamp for each in decode_rows(split_batches(fetch(client, end, partition=1).records)[0].records())
    )
    assert [listed(-1, level) for level in (0, 1)] == [end + 1, end]
    assert [listed(since, level) for level in (0, 1)] == [end, -1]
    producer.end()
    assert [listed(-1, level) for level in (0, 1)] == [end + 2, end + 2]
    assert [listed(since, level) for level in (0, 1)] == [end, end]


def test_init_producer_id_errors(client: WireClient) -> None:
    assert Producer(client, "").init() == INVALID_REQUEST
    assert Producer(client, "x").init(timeout_ms=0) == TIMEOUT
    assert Producer(client, "x").init(timeout_ms=900_001) == TIMEOUT
    assert Producer(client, "x").init(producer_id=5) == INVALID_REQUEST
    assert Producer(client, "x").init(producer_epoch=5) == INVALID_REQUEST


def test_errors_for_missing_partitions(client: WireClient) -> None:
    producer = Producer(client, "nowhere")
    producer.init()
    assert producer.add(0, 99) == [NOT_ATTEMPTED, UNKNOWN_TOPIC]
    assert producer.add(0, topic="nowhere") == [UNKNOWN_TOPIC]
    assert producer.state() == "Empty"


def test_refuses_records_for_partitions_not_added(client: WireClient) -> None:
    """Otherwise they would open a transaction there that never ends."""
    producer = Producer(client, "not added")
    producer.init()
    before = stable_end(client, 1)
    assert producer.write(b"too early", 1, version=10) == INVALID_TXN_STATE
    assert producer.write(b"too early", 1) == ABORTABLE
    producer.add(0)
    assert producer.write(b"elsewhere", 1) == ABORTABLE
    assert producer.write(b"here", 0) == 0
    assert producer.add(0, 1, version=4, verify_only=True) == [0, ABORTABLE]
    assert producer.add(0, 1, version=5, verify_only=True) == [0, ABORTABLE]
    producer.end()
    assert producer.write(b"too late", 0) == ABORTABLE
    assert stable_end(client, 1) == before
    old = Producer(client, "not added")
    old.id, old.epoch = producer.id, producer.epoch
    producer.init()
    assert old.write(b"fenced", 0) == INVALID_EPOCH
    assert Producer(client, "never heard of").write(b"x") == MAPPING
    data = batch(b"x", producer_id=producer.id, producer_epoch=producer.epoch, base_sequence=0, transactional=True)
    assert produce(client, data).error_code == NOT_AUTHORIZED  # no transactional id


def test_new_producer_aborts_the_open_transaction(client: WireClient) -> None:
    old, new = Producer(client, "left open"), Producer(client, "left open")
    old.init()
    old.add(0)
    old.write(b"left")
    assert new.init() == BUSY
    assert new.init() == 0
    assert old.write(b"late") == INVALID_EPOCH
    assert old.end() == FENCED
    before, end = stable_end(client)
    assert before == end


def offsets(client: WireClient, group: str, stable: bool = True) -> tuple[int, int]:
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=stable)
    (found,) = client.call(request, 9).groups
    ((partition,),) = (topic.partitions for topic in found.topics)
    return partition.error_code, partition.committed_offset


def commit_offset(producer: Producer, group: str, offset: int, version: int, **options: Any) -> int:
    one = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="m")
    request = TxnOffsetCommitRequest(
        transactional_id=producer.name,
        group_id=group,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[one])],
        **options,
    )
    ((found,),) = (topic.partitions for topic in producer.client.call(request, version).topics)
    return int(found.error_code)


@pytest.mark.parametrize("version", range(6))
def test_commits_offsets_in_a_transaction(client: WireClient, version: int) -> None:
    group = f"group-{version}"
    client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4)
    producer = Producer(client, f"offsets-{version}")
    producer.init()
    if version < 5:
        assert commit_offset(producer, group, 1, version) == (ABORTABLE if version == 4 else INVALID_TXN_STATE)
    for number, commit in enumerate((True, False), start=1):
        request = AddOffsetsToTxnRequest(
            transactional_id=producer.name, producer_id=producer.id, producer_epoch=producer.epoch, group_id=group
        )
        if version < 5:
            assert client.call(request, version).error_code == 0
        assert commit_offset(producer, group, number * 10, version) == 0
        assert offsets(client, group)[0] == 88  # UNSTABLE_OFFSET_COMMIT
        assert offsets(client, group, stable=False) == (0, -1 if number == 1 else 10)
        assert producer.end(commit, version=min(version, 5)) == 0
        assert offsets(client, group) == (0, 10)
    assert commit_offset(producer, "", 1, version) == 24
    producer.epoch += 7
    assert commit_offset(producer, group, 1, version) == INVALID_EPOCH


def test_describes_and_lists_transactions(client: WireClient) -> None:
    producer = Producer(client, "described")
    producer.init()
    producer.add(0, 2)
    (found,) = client.call(DescribeTransactionsRequest(transactional_ids=["described"]), 0).transaction_states
    assert (found.error_code, found.transaction_state, found.transaction_timeout_ms) == (0, "Ongoing", TIMEOUT_MS)
    assert (found.producer_id, found.producer_epoch) == (producer.id, 0)
    assert [(each.topic, each.partitions) for each in found.topics] == [("t", [0, 2])]
    codes = client.call(DescribeTransactionsRequest(transactional_ids=["nobody", ""]), 0).transaction_states
    assert [each.error_code for each in codes] == [NOT_FOUND, INVALID_REQUEST]

    def listed(version: int = 2, **filters: Any) -> list[str]:
        reply = client.call(ListTransactionsRequest(**filters), version)
        assert reply.error_code == 0
        return [each.transactional_id for each in reply.transaction_states]

    for version in range(3):
        assert "described" in listed(version)
    assert listed(state_filters=["Ongoing"]) == ["described"]
    assert listed(state_filters=["Dead"]) == []
    assert listed(producer_id_filters=[producer.id]) == ["described"]
    assert listed(transactional_id_pattern="descr.*") == ["described"]
    assert listed(transactional_id_pattern="descr") == []
    assert "described" not in listed(duration_filter=3_600_000)
    reply = client.call(ListTransactionsRequest(state_filters=["Nonsense"]), 2)
    assert (reply.unknown_state_filters, reply.transaction_states) == (["Nonsense"], [])
    assert client.call(ListTransactionsRequest(transactional_id_pattern="("), 2).error_code == 128
    producer.end()


@pytest.mark.parametrize("version", [1, 2])
def test_write_txn_markers_from_a_client(client: WireClient, version: int) -> None:
    """As sent by the tool that aborts hanging transactions."""
    producer = Producer(client, f"hanging-{version}")
    producer.init()
    producer.add(0)
    producer.write(b"hangs")
    marker = WritableTxnMarker(
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0, 99])],
        coordinator_epoch=0,
    )
    bad = WritableTxnMarker(producer_id=-1, topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])])
    marker.topics.append(WritableTxnMarkerTopic(name="__consumer_offsets", partition_indexes=[99]))
    first, second = client.call(WriteTxnMarkersRequest(markers=[marker, bad]), version).markers
    assert first.topics[1].partitions[0].error_code == NOT_LEADER
    assert [each.error_code for each in first.topics[0].partitions] == [0, UNKNOWN_TOPIC]
    assert [each.error_code for each in second.topics[0].partitions] == [INVALID_REQUEST]
    before, end = stable_end(client)
    assert before == end


def test_clients_cannot_write_to_the_internal_topic(client: WireClient) -> None:
    request = produce_request(batch(b"x"), topic=TRANSACTION_TOPIC)
    ((reply,),) = (topic.partition_responses for topic in client.call(request, NAMED).responses)
    assert reply.error_code == 17


@pytest.mark.parametrize("clean", [True, False])
def test_survives_a_restart_between_any_two_steps(clean: bool) -> None:
    with EmbeddedBroker(FEW, topics={"t": 1}) as broker:

        def restarted() -> WireClient:
            producer.client.close()
            broker.restart(clean)
            producer.client = WireClient(broker.address)
            return producer.client

        with WireClient(broker.address) as first:
            first.call(FindCoordinatorRequest(key_type=1, coordinator_keys=["p"]), 4)
            producer = Producer(first, "p")
            producer.init()
        for commit in (True, False):
            restarted()
            assert producer.add(0) == [0]
            restarted()
            assert producer.write(b"x") == 0
            restarted()
            assert producer.end(commit) == 0
            restarted()
            assert producer.state() == ("CompleteCommit" if commit else "CompleteAbort")
        other = Producer(producer.client, "q")
        assert other.init() == 0
        assert other.id >= 1000  # a new block of ids
        found = fetch(producer.client, 0, isolation_level=1)
        assert found.last_stable_offset == found.high_watermark == 4
        assert [(each.producer_id, each.first_offset) for each in found.aborted_transactions] == [(producer.id, 2)]
        producer.client.close()


def test_ids_have_no_partition_before_the_topic_is_known() -> None:
    """Not even the partition that the configs imply: the topic may have been created with another number of
    partitions."""
    with EmbeddedBroker(FEW, topics={"t": 1}) as broker, WireClient(broker.address) as client:
        topic_partition = broker.call(lambda it: it.coordinators.partition_of(TRANSACTION_TOPIC, "p"))
        assert topic_partition == -1
        producer = Producer(client, "p")
        assert producer.init() == NOT_COORDINATOR
        client.call(FindCoordinatorRequest(key_type=1, coordinator_keys=["p"]), 4)
        assert producer.init() == 0
        assert commit_offset(producer, "g", 1, 5) == NOT_COORDINATOR
        assert producer.state() == "Empty"


def wait_for_states(broker: EmbeddedBroker, expected: list[str]) -> None:
    def states(it: Broker) -> list[str]:
        shards = it.transactions.runtime.shards()
        return [each.state.label for shard in shards for each in shard.transactions.values()]

    broker.wait_until(lambda it: states(it) == expected)


def test_completes_a_prepared_transaction_after_a_crash() -> None:
    with EmbeddedBroker(FEW, topics={"t": 1}) as broker:
        with WireClient(broker.address) as client:
            client.call(FindCoordinatorRequest(key_type=1, coordinator_keys=["p"]), 4)
            producer = Producer(client, "p")
            producer.init()
            producer.add(0)
            producer.write(b"x")
            # The broker crashes after it has written the decision, and before the first marker.
            broker.call(lambda it: setattr(it.transactions, "write_marker", lambda *_: None))
            assert producer.end() == 0
            assert producer.state() == "PrepareCommit"
            assert producer.end() == BUSY
        broker.restart(clean=False)
        with WireClient(broker.address) as client:
            producer.client = client
            wait_for_states(broker, ["CompleteCommit"])
            assert stable_end(client) == (2, 2)
            assert producer.end() == 0


def test_deleted_topic_does_not_block_the_end() -> None:
    with EmbeddedBroker(FEW, topics={"t": 1, "gone": 1}) as broker, WireClient(broker.address) as client:
        client.call(FindCoordinatorRequest(key_type=1, coordinator_keys=["p"]), 4)
        producer = Producer(client, "p")
        producer.init()
        assert producer.add(0, topic="gone") == [0]
        assert producer.add(0) == [0]
        producer.write(b"x")
        broker.delete_topic("gone")
        assert producer.end() == 0
        wait_for_states(broker, ["CompleteCommit"])


def test_aborts_timed_out_transactions() -> None:
    quick = {**FEW, "transaction.abort.timed.out.transaction.cleanup.interval.ms": 20}
    with EmbeddedBroker(quick, topics={"t": 1}) as broker, WireClient(broker.address) as client:
        client.call(FindCoordinatorRequest(key_type=1, coordinator_keys=["p"]), 4)
        producer = Producer(client, "p")
        producer.init(timeout_ms=50)
        producer.add(0)
        producer.write(b"x")
        broker.wait_until(lambda it: it.replicas.find("t", 0).log.last_stable_offset == 2)
        assert producer.state() == "CompleteAbort"
        assert producer.write(b"late") == INVALID_EPOCH
        assert producer.end() == FENCED


@pytest.mark.parametrize("commit", [True, False])
def test_older_request_version_ends_the_transaction(client: WireClient, commit: bool) -> None:
    """No client does that. Without its markers, read_committed consumers would wait forever."""
    producer = Producer(client, f"mixed {commit}")
    producer.init()
    assert producer.write(b"new", 2, version=12) == 0
    assert producer.end(commit, version=4) == 0
    stable, high_watermark = stable_end(client, 2)
    assert stable == high_watermark


def test_verification_is_a_dynamic_config() -> None:
    key = "transaction.partition.verification.enable"
    with EmbeddedBroker(FEW, topics={"t": 1}) as broker, WireClient(broker.address) as client:
        client.call(FindCoordinatorRequest(key_type=1, coordinator_keys=["p"]), 4)
        producer = Producer(client, "p")
        producer.init()
        assert producer.write(b"not added") == ABORTABLE
        alter_configs(client, BROKER, "", (key, SET, "false"))
        broker.wait_until(lambda it: it.dynamic_config.broker(key) is False)
        assert producer.write(b"not added") == 0
        alter_configs(client, BROKER, "", (key, DELETE, None))
        broker.wait_until(lambda it: it.dynamic_config.broker(key) is True)
        producer.init()
        assert producer.write(b"not added") == ABORTABLE, "the open transaction there is of an older epoch"
