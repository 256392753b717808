"""Bad input from many connections at once: the broker does not crash, hang, leak, lose data or mix up its responses,
and good clients notice nothing.

`HEADRACE_HOSTILE_ROUNDS` makes the attacks longer, `HEADRACE_HOSTILE_SEED` repeats one; the seed is printed.
"""

import asyncio
import os
import random
import resource
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.support.broker.process import Headrace
from tests.support.hostile.clients import Attack, HostileConnection
from tests.support.hostile.frames import check_answers, tame
from tests.support.hostile.requests import CLIENT_APIS, STRANGERS_FROM, VICTIM, VICTIM_PARTITIONS
from tests.support.hostile.witnesses import (
    Follower,
    GoodClient,
    GoodMember,
    Process,
    StoredData,
    create_topic,
    read_all,
)
from tests.support.net.wire_calls import NAMED, batch, fetch, fetch_request, produce, produce_request, topic_id
from tests.support.net.wire_client import WireClient
from tests.support.protocol.samples import sample

from headrace.broker.apis import Api
from headrace.broker.config.coordinators import GROUP_TOPIC, TRANSACTION_TOPIC
from headrace.broker.server import Broker
from headrace.common.errors import GroupIdNotFoundError, InvalidGroupIdError
from headrace.common.ids import ZERO_UUID
from headrace.coordinator.group.classic_group import GroupState
from headrace.coordinator.transaction.metadata import TransactionState
from headrace.protocol import Message
from headrace.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from headrace.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.protocol.messages.delete_groups import DeleteGroupsRequest
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.protocol.messages.describe_groups import DescribeGroupsRequest
from headrace.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from headrace.protocol.messages.describe_transactions import DescribeTransactionsRequest
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.protocol.messages.list_groups import ListGroupsRequest
from headrace.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.protocol.messages.list_transactions import ListTransactionsRequest
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from headrace.records import BatchBuilder, Compression
from headrace.testing import EmbeddedBroker

ROUNDS = int(os.environ.get("HEADRACE_HOSTILE_ROUNDS", "6"))
WARM_UP_ROUNDS = min(max(4, ROUNDS // 2), 60)
"""After about 60 rounds allocators and the fetch session cache have their maximum size."""
SEED = int(os.environ.get("HEADRACE_HOSTILE_SEED", "1")) or random.SystemRandom().randrange(1, 2**31)
"""0 means a new seed in each run, as in `make soak`."""
SECONDS = 60.0
LEAK_BYTES = (48 if ROUNDS >= 60 else 128) * 1024 * 1024
"""The allowed growth of the process after the warm-up, for any number of rounds: allocators keep pages. A short run
ends before memory use is stable."""
PROPERTIES = {
    "log.segment.delete.delay.ms": 100,
    "log.flush.offset.checkpoint.interval.ms": 60_000,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "group.initial.rebalance.delay.ms": 20,
    "group.min.session.timeout.ms": 1,
    "offsets.retention.check.interval.ms": 100,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
}
"""Few coordinator partitions, and short timeouts for disconnected clients."""
LARGEST = 2**31 - 1
INVALID_REPLICA_ASSIGNMENT = 39
INVALID_REQUEST = 42
POLICY_VIOLATION = 44
RESET = struct.pack("ii", 1, 0)
"""For SO_LINGER: resets the connection instead of closing it."""

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc to look at the broker")


def address_of(process: Headrace) -> tuple[str, int]:
    host, _, port = process.bootstrap.rpartition(":")
    return host, int(port)


def eventually(condition: Callable[[], object], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.02)


def complaints(process: Headrace, seen_bytes: int = 0) -> list[str]:
    """Returns new log lines that indicate a bug."""
    lines = process.log_file.read_bytes()[seen_bytes:].decode(errors="replace").splitlines()
    wrong = [at for at, line in enumerate(lines) if "Traceback" in line or " ERROR " in line or " FATAL " in line]
    return ["\n".join(lines[max(0, at - 1) : at + 30]) for at in wrong[:3]]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headrace]:
    """A broker for tests that leave little state behind."""
    with Headrace(tmp_path_factory.mktemp("shared") / "data", PROPERTIES) as broker:
        with WireClient(address_of(broker)) as client:
            make_victim(client)
        yield broker


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Headrace]:
    with Headrace(tmp_path / "data", PROPERTIES) as broker:
        with WireClient(address_of(broker)) as client:
            make_victim(client)
        yield broker


@pytest.fixture
def client(process: Headrace) -> Iterator[WireClient]:
    with WireClient(address_of(process), timeout=SECONDS * 2) as client:
        yield client


@contextmanager
def good_client(broker: Headrace) -> Iterator[GoodClient]:
    """A good client at work, which must not notice anything."""
    good = GoodClient(address_of(broker), f"good-{random.getrandbits(32)}", SEED)
    good.start()
    try:
        yield good
    finally:
        good.finish()
    good.check()
    with WireClient(address_of(broker)) as client:
        assert read_all(client, good.topic) == good.acknowledged


@pytest.fixture
def good(process: Headrace) -> Iterator[GoodClient]:
    with good_client(process) as good:
        yield good
    assert not complaints(process)


def delete_all_topics_but(client: WireClient, kept: set[str]) -> None:
    names = {topic.name for topic in client.call(MetadataRequest(topics=None), 12).topics} - kept
    asked = [DeleteTopicState(name=name) for name in sorted(names)]
    deleted = client.call(DeleteTopicsRequest(topics=asked, timeout_ms=60_000), 6).responses
    assert all(topic.error_code == 0 for topic in deleted), deleted


def make_coordinators(client: WireClient) -> None:
    for key_type in (0, 1):
        (found,) = client.call(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["any"]), 4).coordinators
        assert found.error_code == 0, found


def make_victim(client: WireClient) -> None:
    make_coordinators(client)
    create_topic(client, VICTIM, VICTIM_PARTITIONS)
    for partition in range(VICTIM_PARTITIONS):
        assert produce(client, batch(b"v" * 100), topic=VICTIM, partition=partition).error_code == 0


def renew_victim(client: WireClient, attack: Attack) -> None:
    """Creates the topic again if a round deleted it."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=VICTIM)], allow_auto_topic_creation=False)
    (topic,) = client.call(request, NAMED).topics
    if topic.error_code:
        make_victim(client)
    attack.victim_id = topic_id(client, VICTIM)


# ---- everything at once


def test_bad_clients_do_not_affect_good_ones(tmp_path: Path) -> None:
    print(f"HEADRACE_HOSTILE_SEED={SEED} HEADRACE_HOSTILE_ROUNDS={ROUNDS}")
    with Headrace(tmp_path / "data", PROPERTIES) as broker:
        address = address_of(broker)
        stored = StoredData(address, SEED)
        good = [GoodClient(address, "good", SEED), GoodClient(address, "better", SEED + 1)]
        with WireClient(address) as client:
            make_victim(client)
        member = GoodMember(address, "good-member")
        attack = Attack(address, SEED)
        rss_after_warm_up, rss_at_end = attack_beside(good, member, attack, Process(broker.pid or 0))
        slowest = max(one.slowest_seconds for one in good)
        print(
            f"{attack.played.total()} bad clients sent {attack.bytes_sent / 1e6:.1f} MB and got "
            f"{attack.answers.total()} answers; good clients made {sum(one.rounds for one in good)} rounds, the "
            f"slowest took {slowest * 1000:.0f} ms, the good member {member.rounds}; RSS "
            f"{rss_after_warm_up / 1e6:.0f} MB after the warm-up, {rss_at_end / 1e6:.0f} MB at the end\n"
            f"{dict(attack.played)}\n{dict(attack.answers)}"
        )
        stored.check(address)
        assert rss_at_end - rss_after_warm_up < LEAK_BYTES
        broker.stop()
        broker.start()
        stored.check(address)
        with WireClient(address) as client:
            for one in good:
                assert read_all(client, one.topic) == one.acknowledged
            member.check_offsets(client)
            member.check_records(client)
        assert not complaints(broker)


def attack_beside(good: list[GoodClient], member: GoodMember, attack: Attack, numbers: Process) -> tuple[int, int]:
    """Runs all rounds with good clients at work. Nothing of the bad ones may remain. Returns RSS before and after."""
    witnesses: list[GoodClient | GoodMember | Follower] = [*good, member, Follower(attack.address, good[0])]
    with WireClient(attack.address, timeout=SECONDS * 2) as client:
        renew_victim(client, attack)  # this also connects all clients
        files, sockets = numbers.files_of_no_log - len(witnesses), numbers.sockets - len(witnesses)
        for witness in witnesses:
            witness.start()
        try:
            for number in range(WARM_UP_ROUNDS + ROUNDS):
                if number == WARM_UP_ROUNDS:
                    rss_after_warm_up = numbers.rss_bytes
                renew_victim(client, attack)
                asyncio.run(attack.round())
                for witness in witnesses:
                    witness.check()
        finally:
            for witness in witnesses:
                witness.finish()
        for witness in witnesses:
            witness.check()
        eventually(lambda: numbers.sockets <= sockets, lambda: f"{numbers.sockets} sockets are open, not {sockets}")
        renew_victim(client, attack)
        kept = {StoredData.TOPIC, VICTIM, member.topic, GROUP_TOPIC, TRANSACTION_TOPIC}
        delete_all_topics_but(client, {*kept, *(one.topic for one in good)})
        eventually(
            lambda: numbers.files_of_no_log <= files, lambda: f"{numbers.files_of_no_log} files are open, not {files}"
        )
        return rss_after_warm_up, numbers.rss_bytes


def test_no_state_of_bad_clients_remains() -> None:
    print(f"HEADRACE_HOSTILE_SEED={SEED}")
    with EmbeddedBroker(PROPERTIES, topics={VICTIM: VICTIM_PARTITIONS}) as broker:
        attack = Attack(broker.address, SEED, connections=30)
        for _ in range(3):
            with WireClient(broker.address) as client:
                make_coordinators(client)
                renew_victim(client, attack)
            asyncio.run(attack.round())
        broker.wait_until(lambda inside: inside.server.connections_open == 0, SECONDS * 1000)
        broker.wait_until(lambda inside: inside.replicas.fetches.delayed == 0, SECONDS * 1000)
        broker.wait_until(lambda inside: not inside.dispatcher._tasks, SECONDS * 1000)
        assert broker.call(lambda inside: inside.replicas.fetches.watched) == 0
        assert broker.call(lambda inside: inside.replicas.produces.delayed) == 0
        broker.wait_until(lambda inside: len(inside.driver.timer) == periodic_timers(inside), SECONDS * 1000)
        broker.wait_until(has_only_groups_with_offsets, SECONDS * 1000)
        broker.wait_until(lambda inside: not open_transactions(inside), SECONDS * 1000)
        assert broker.call(lambda inside: inside.server.memory.held_bytes) == 0
        assert broker.call(unstable_partitions) == []
        before = broker.call(what_coordinators_keep)
        broker.restart()
        broker.wait_until(lambda inside: what_coordinators_keep(inside) == before, SECONDS * 1000)


def periodic_timers(inside: Broker) -> int:
    """Returns the number of timers of idle shards: one of a group shard, two of a transaction shard."""
    return len(inside.coordinators.groups.shards()) + 2 * len(inside.transactions.runtime.shards())


def has_only_groups_with_offsets(inside: Broker) -> bool:
    """Committed offsets are kept for a week, as in Kafka; members and empty groups are removed."""
    return all(
        group.state is GroupState.EMPTY and not group.pending_joins and shard.offsets_of(name)
        for shard in inside.coordinators.groups.shards()
        for name, group in shard.groups.items()
    )


def unstable_partitions(inside: Broker) -> list[int]:
    """Returns partitions with an open transaction, which blocks read_committed consumers."""
    partitions = [inside.replicas.get(VICTIM, index) for index in range(VICTIM_PARTITIONS)]
    logs = [each.log for each in partitions if each is not None and each.log is not None]  # the topic may be deleted
    return [log.tp.partition for log in logs if log.last_stable_offset != log.log_end_offset]


def what_coordinators_keep(inside: Broker) -> tuple[dict[str, object], dict[str, object]]:
    """Returns committed offsets and transactions, to compare them before and after a restart."""
    offsets: dict[str, object] = {
        name: sorted((tp, committed.offset, committed.metadata) for tp, committed in shard.offsets_of(name))
        for shard in inside.coordinators.groups.shards()
        for name in shard.groups
    }
    transactions: dict[str, object] = {
        name: each for shard in inside.transactions.runtime.shards() for name, each in shard.transactions.items()
    }
    return offsets, transactions


def open_transactions(inside: Broker) -> list[str]:
    return [
        f"{each.transactional_id} is {each.state.label}"
        for shard in inside.transactions.runtime.shards()
        for each in shard.transactions.values()
        if not (each.state is TransactionState.EMPTY or each.state.is_complete)
    ]


@pytest.mark.parametrize("api", CLIENT_APIS, ids=lambda api: api.key.name)
def test_every_version_with_mutated_bytes(shared: Headrace, api: Api) -> None:
    """Each request has its own connection: the first bad one closes it."""

    seen = shared.log_file.stat().st_size

    async def send(version: int, number: int) -> None:
        reader, writer = await asyncio.open_connection(*address_of(shared))
        seed = f"{SEED}/{api.key.name}/{version}/{number}"
        peer = HostileConnection(reader, writer, number, seed, ZERO_UUID)
        whole = peer.frames.request(tame(sample(api.request, version, peer.random, full=True)), version)
        body = peer.frames.broken(whole[4:]) if number else whole[4:]
        try:
            async with asyncio.timeout(SECONDS):
                await peer.send(struct.pack(">i", len(body)) + body)
                await peer.read_to_end()
        finally:
            await peer.close()
        check_answers(bytes(peer.sent), bytes(peer.received))

    async def send_all() -> None:
        versions = range(api.lowest, api.highest + 1)
        await asyncio.gather(*(send(version, number) for version in versions for number in range(6)))

    print(f"HEADRACE_HOSTILE_SEED={SEED}")
    asyncio.run(send_all())
    assert not complaints(shared, seen)


# ---- numbers that are too large


def creation(**topic: object) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[CreatableTopic(**topic)], timeout_ms=10_000)  # type: ignore[arg-type]


def test_refuses_too_many_partitions(client: WireClient, good: GoodClient) -> None:
    for count in (LARGEST, 1_000_000, 10_001):
        (topic,) = client.call(creation(name="t", num_partitions=count, replication_factor=1)).topics
        assert topic.error_code == POLICY_VIOLATION
        asked = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=VICTIM, count=min(count + 3, LARGEST), assignments=None)]
        )
        (grown,) = client.call(asked).results
        assert grown.error_code == POLICY_VIOLATION
    several = [CreatableTopic(name=f"t{i}", num_partitions=3000, replication_factor=1) for i in range(5)]
    made = client.call(CreateTopicsRequest(topics=several, timeout_ms=10_000, validate_only=True)).topics
    assert [topic.error_code for topic in made] == [0, 0, 0, POLICY_VIOLATION, POLICY_VIOLATION], "10,000 in a request"


def test_refuses_too_many_assignments(client: WireClient, good: GoodClient) -> None:
    many = [CreatableReplicaAssignment(partition_index=i, broker_ids=[0]) for i in range(20_000)]
    wide = [CreatableReplicaAssignment(partition_index=0, broker_ids=list(range(100_000)))]
    for assignments, codes in ((many, (POLICY_VIOLATION,)), (wide, (INVALID_REPLICA_ASSIGNMENT,))):
        request = creation(name="t", num_partitions=-1, replication_factor=-1, assignments=assignments)
        (topic,) = client.call(request).topics
        assert topic.error_code in codes


def test_good_clients_continue_while_partitions_are_created(client: WireClient, good: GoodClient) -> None:
    """The broker yields in between: other requests wait for a part of the time only."""
    eventually(lambda: good.rounds > 10, lambda: "the good client does not work")
    before = good.rounds
    (topic,) = client.call(creation(name="many", num_partitions=300, replication_factor=1)).topics
    meanwhile = good.rounds - before
    assert topic.error_code == 0
    assert meanwhile > 1


def test_responds_to_large_lists(client: WireClient, good: GoodClient) -> None:
    names = [f"no-such-topic-{i}" for i in range(20_000)]
    topics = [MetadataRequestTopic(name=name) for name in names]
    reply = client.call(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 12)
    assert [topic.name for topic in reply.topics] == names
    asked = [TopicRequest(name=name) for name in names]
    reply = client.call(DescribeTopicPartitionsRequest(topics=asked, response_partition_limit=LARGEST))
    assert len(reply.topics) == len(names)
    cursor = Cursor(topic_name="z" * 30_000, partition_index=LARGEST)
    request = DescribeTopicPartitionsRequest(topics=[], response_partition_limit=-LARGEST, cursor=cursor)
    assert client.call(request).topics == []
    partitions = [PartitionProduceData(index=index, records=None) for index in range(20_000)]
    produced = ProduceRequest(
        acks=-1, timeout_ms=LARGEST, topic_data=[TopicProduceData(name=VICTIM, partition_data=partitions)]
    )
    (topic,) = client.call(produced, NAMED).responses
    assert all(one.error_code for one in topic.partition_responses)


MANY_NAMES = [f"g{number}" for number in range(10_000)]
VERY_LONG_LISTS: list[tuple[Message, int]] = [
    (FindCoordinatorRequest(key_type=0, coordinator_keys=MANY_NAMES), 6),
    (DescribeGroupsRequest(groups=MANY_NAMES), 6),
    (DeleteGroupsRequest(groups_names=MANY_NAMES), 2),
    (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in MANY_NAMES]), 9),
    (
        WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=STRANGERS_FROM,
                    producer_epoch=1,
                    topics=[WritableTxnMarkerTopic(name=VICTIM, partition_indexes=[0] * len(MANY_NAMES))],
                )
            ]
        ),
        1,
    ),
]


def test_responds_to_requests_with_many_items(shared: Headrace) -> None:
    """Other requests run in between: see the unit test of `yielding`."""
    with WireClient(address_of(shared), timeout=SECONDS * 2) as client, good_client(shared):
        for request, version in VERY_LONG_LISTS:
            client.call(request, version)


def test_responds_to_many_filters(shared: Headrace) -> None:
    with WireClient(address_of(shared), timeout=SECONDS * 2) as client:
        assert client.call(ListGroupsRequest(states_filter=MANY_NAMES, types_filter=MANY_NAMES), 5).groups == []
        request = ListTransactionsRequest(state_filters=MANY_NAMES, producer_id_filters=list(range(10_000)))
        assert len(client.call(request, 2).unknown_state_filters) == len(MANY_NAMES)


def test_frees_memory_after_a_long_list(process: Headrace, client: WireClient, good: GoodClient) -> None:
    """Elements of two bytes become large objects, whose memory is freed."""
    numbers = Process(process.pid or 0)
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="")] * 190_000, response_partition_limit=1)
    client.call(request)
    after_one = numbers.rss_bytes
    for _ in range(3):
        client.call(request)
    print(f"RSS {after_one / 1e6:.0f} MB after one, {numbers.rss_bytes / 1e6:.0f} MB after four")
    assert numbers.rss_bytes - after_one < LEAK_BYTES


# ---- names that are too long


@pytest.mark.parametrize("version", range(2, 8))
def test_responds_to_the_longest_topic_name(shared: Headrace, version: int) -> None:
    with WireClient(address_of(shared)) as client:
        (topic,) = client.call(creation(name="n" * 32_767, num_partitions=1, replication_factor=1), version).topics
        assert topic.error_code == 17
        config = [CreatableTopicConfig(name="c" * 32_767, value="v" * 32_767)]
        (topic,) = client.call(
            creation(name="t", num_partitions=1, replication_factor=1, configs=config), version
        ).topics
        assert topic.error_code == 40


def test_responds_to_the_longest_group_and_transaction_names(shared: Headrace) -> None:
    """Names that cannot be stored are refused; every name gets a response."""
    name = "n" * 32_767
    with WireClient(address_of(shared)) as client:
        protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
        join = JoinGroupRequest(group_id=name, session_timeout_ms=1000, protocol_type="consumer", protocols=protocols)
        assert client.call(join, 9).error_code == InvalidGroupIdError.code
        (described,) = client.call(DescribeGroupsRequest(groups=[name]), 6).groups
        assert (described.error_code, described.group_id) == (GroupIdNotFoundError.code, name)
        assert described.error_message is not None
        assert len(described.error_message) <= 1000
        (found,) = client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[name]), 6).coordinators
        assert (found.error_code, found.key) == (0, name)
        given = client.call(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000), 5)
        assert given.error_code == 0
        (told,) = client.call(DescribeTransactionsRequest(transactional_ids=[name]), 0).transaction_states
        assert (told.error_code, told.transaction_state) == (0, "Empty")


@pytest.mark.parametrize("version", range(8, 13))
def test_responds_to_produce_to_the_longest_name(shared: Headrace, version: int) -> None:
    with WireClient(address_of(shared)) as client:
        assert produce(client, batch(), version, topic="n" * 32_767).error_code == 3


@pytest.mark.parametrize("version", [10, 11])
def test_responds_to_a_topic_without_a_name(shared: Headrace, version: int) -> None:
    """These versions have topic ids, but cannot request topics by id."""
    with WireClient(address_of(shared)) as client:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=None)])
        (topic,) = client.call(request, version).topics
        assert topic.error_code == INVALID_REQUEST


# ---- waiting


def test_cancels_waits_of_disconnected_clients(process: Headrace, client: WireClient, good: GoodClient) -> None:
    """A fetch that waits for 24 days does not keep its socket, however the client disconnected."""
    numbers = Process(process.pid or 0)
    before = numbers.sockets
    for number in range(40):
        with WireClient(address_of(process)) as gone:
            gone.send(fetch_request(1, VICTIM, max_wait_ms=LARGEST, min_bytes=LARGEST), NAMED)
            if number % 2:
                gone.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    eventually(lambda: numbers.sockets == before, lambda: f"{numbers.sockets} sockets are open, not {before}")


def test_reads_a_partition_once_per_fetch(shared: Headrace) -> None:
    """As in Kafka. Each append checks a delayed fetch, which must be fast."""
    one = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    with WireClient(address_of(shared)) as client:
        request = FetchRequest(topics=[FetchTopic(topic=VICTIM, partitions=[one] * 20_000)], max_wait_ms=0, min_bytes=1)
        reply = client.call(request, NAMED)
        assert sum(len(topic.partitions) for topic in reply.responses) == 1


def test_refuses_duplicate_partitions_in_list_offsets(shared: Headrace) -> None:
    """As in Kafka. A lookup may inflate a batch, which must not happen for each of 2,000 duplicates."""
    twice = [ListOffsetsPartition(partition_index=0, timestamp=0)] * 2
    once = [ListOffsetsPartition(partition_index=1, timestamp=0)]
    with WireClient(address_of(shared)) as client:
        topic = ListOffsetsTopic(name=VICTIM, partitions=twice + once)
        (told,) = client.call(ListOffsetsRequest(replica_id=-1, topics=[topic]), 7).topics
        codes = {(one.partition_index, one.error_code) for one in told.partitions}
        assert codes == {(0, INVALID_REQUEST), (1, 0)}


def test_good_clients_continue_while_batches_inflate(client: WireClient, good: GoodClient) -> None:
    """Each has a few KB and inflates to 50 MB. The broker must handle other requests between them."""
    builder = BatchBuilder(codec=Compression.ZSTD)
    builder.append(None, bytes(50_000_000), 0)
    request = produce_request(bytes(builder.build()), VICTIM)
    eventually(lambda: good.rounds > 10, lambda: "the good client does not work")
    before = good.rounds
    for sent in [client.send(request, NAMED) for _ in range(20)]:
        client.receive(sent)
    assert good.rounds - before > 1


def test_unread_response_does_not_block_others(process: Headrace, client: WireClient, good: GoodClient) -> None:
    for _ in range(8):
        assert produce(client, batch(bytes(900_000)), topic=VICTIM).error_code == 0
    with WireClient(address_of(process)) as greedy:
        for _ in range(200):
            greedy.send(fetch_request(0, VICTIM, max_bytes=LARGEST), NAMED)
        rounds = good.rounds
        eventually(lambda: good.rounds > rounds + 20, lambda: "the good client has stopped")


# ---- files and memory run out


@pytest.fixture
def short_of_files(tmp_path: Path) -> Iterator[Headrace]:
    """A broker that can open 300 more files and writes checkpoints continuously."""
    eager = {"replica.high.watermark.checkpoint.interval.ms": 50, "log.flush.offset.checkpoint.interval.ms": 50}
    with Headrace(tmp_path / "data", {**PROPERTIES, **eager}) as broker:
        with WireClient(address_of(broker)) as client:
            make_victim(client)
        set_file_limit(broker, 300)
        yield broker


def set_file_limit(broker: Headrace, more: int) -> None:
    """Sets the number of files that the broker can open in addition."""
    pid = broker.pid or 0
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (min(Process(pid).open_files + more, hard), hard))


def check_victim_stays_online(client: WireClient) -> None:
    """Checks writes and reads while checkpoints are due, which need files."""
    for number in range(600):
        partition = number % VICTIM_PARTITIONS
        assert produce(client, batch(b"some"), topic=VICTIM, partition=partition).error_code == 0
        found = fetch(client, 0, VICTIM, partition, max_bytes=100)
        assert (found.error_code, found.high_watermark > 0) == (0, True), "the log is offline"


def check_victim_is_whole(broker: Headrace) -> None:
    """Checks all partitions after files can be opened again."""
    with WireClient(address_of(broker)) as client:
        for partition in range(VICTIM_PARTITIONS):
            assert produce(client, batch(b"more"), topic=VICTIM, partition=partition).error_code == 0
            assert read_all(client, VICTIM, partition)[-1] == b"more"


def test_connections_do_not_take_the_logs_offline(short_of_files: Headrace) -> None:
    """A lack of file handles does not count as a failed disk."""
    flood: list[socket.socket] = []
    with WireClient(address_of(short_of_files), timeout=SECONDS * 2) as client:
        try:
            with suppress(TimeoutError):  # the broker may stop accepting
                for _ in range(400):
                    flood.append(socket.create_connection(address_of(short_of_files), timeout=3.0))
            (topic,) = client.call(creation(name="late", num_partitions=5, replication_factor=1)).topics
            print(f"making a topic gave {topic.error_code} ({topic.error_message})")
            check_victim_stays_online(client)
        finally:
            for sock in flood:
                sock.close()
    check_victim_is_whole(short_of_files)


def test_too_many_partitions_do_not_affect_others(short_of_files: Headrace) -> None:
    """The broker can still stop cleanly, which needs files."""
    with WireClient(address_of(short_of_files), timeout=SECONDS * 2) as client:
        (topic,) = client.call(creation(name="many", num_partitions=400, replication_factor=1)).topics
        print(f"making a topic gave {topic.error_code} ({topic.error_message})")
        check_victim_stays_online(client)
    short_of_files.stop()
    assert (short_of_files.data_dir / ".kafka_cleanshutdown").exists()
    short_of_files.start()
    check_victim_is_whole(short_of_files)


def test_lack_of_memory_for_a_frame_closes_its_connection_only(process: Headrace) -> None:
    pid = process.pid or 0
    before = resource.prlimit(pid, resource.RLIMIT_AS)
    claimants: list[socket.socket] = []
    with good_client(process) as good:
        resource.prlimit(pid, resource.RLIMIT_AS, (Process(pid).virtual_bytes + 350_000_000, before[1]))
        try:
            for _ in range(8):
                sock = socket.create_connection(address_of(process), timeout=SECONDS)
                claimants.append(sock)
                sock.sendall(struct.pack(">i", 100_000_000) + bytes(1000))
            rounds = good.rounds
            eventually(lambda: good.rounds > rounds + 5, lambda: "the good client has stopped")
        finally:
            for sock in claimants:
                sock.close()
            resource.prlimit(pid, resource.RLIMIT_AS, before)
