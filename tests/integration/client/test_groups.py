"""Consumer groups with a real broker: assignments, listener calls and commits."""

import itertools
from collections.abc import Iterator

import pytest
from tests.support.broker.process import eventually
from tests.support.client.polling_consumers import PATIENCE, Poller, Pollers
from tests.support.net.wire_calls import batch, produce
from tests.support.net.wire_client import WireClient

from headrace import Consumer, MemberState, OffsetAndMetadata, TopicPartition
from headrace.client.errors import CommitFailedError
from headrace.common.errors import (
    CoordinatorLoadInProgressError,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    NotCoordinatorError,
    RebalanceInProgressError,
)
from headrace.protocol.apis import ApiKey
from headrace.testing import EmbeddedBroker

COUNT = 4
_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker({"group.initial.rebalance.delay.ms": 50, "offsets.topic.num.partitions": 2}) as running:
        yield running


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    name = f"topic-{next(_numbers)}"
    broker.create_topic(name, COUNT)
    return name


@pytest.fixture
def pollers(broker: EmbeddedBroker, topic: str) -> Iterator[Pollers]:
    with Pollers(broker.bootstrap_servers, f"group-{topic}", topic) as group:
        yield group
    broker.faults.clear()


def all_of(topic: str, count: int = COUNT) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for index in range(count)]


def write(broker: EmbeddedBroker, topic: str, each: int = 5) -> None:
    with WireClient(broker.address) as client:
        for index in range(COUNT):
            assert produce(client, batch(*[b"value"] * each), topic=topic, partition=index).error_code == 0


def kinds(poller: Poller) -> list[str]:
    return [kind for kind, _ in poller.events]


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_members_join_and_leave(broker: EmbeddedBroker, topic: str, pollers: Pollers, strategy: str) -> None:
    tps = all_of(topic)
    write(broker, topic)
    first = pollers.add(partition_assignment_strategy=strategy)
    pollers.wait_shared(*tps)
    eventually(lambda: len(first.received) == 5 * COUNT, "all is read", PATIENCE)
    second = pollers.add(partition_assignment_strategy=strategy)
    pollers.wait_shared(*tps, busy=2)
    write(broker, topic)
    eventually(lambda: len(pollers.received()) == 10 * COUNT, "all is read", PATIENCE)
    first.close()
    pollers.wait_shared(*tps)
    write(broker, topic)
    eventually(lambda: len(pollers.received()) >= 15 * COUNT, "all is read", PATIENCE)
    received = pollers.received()
    assert len(received) == len(set(received)), "no record is read twice when members join and leave in order"
    assert "lost" not in kinds(first) + kinds(second)
    assert kinds(first)[-1] == "revoked"
    assert not first.errors + second.errors


def test_listener_calls_of_cooperative_rebalance(topic: str, pollers: Pollers) -> None:
    tps = frozenset(all_of(topic))
    first = pollers.add(partition_assignment_strategy="cooperative-sticky")
    pollers.wait_shared(*tps)
    second = pollers.add(partition_assignment_strategy="cooperative-sticky")
    pollers.wait_shared(*tps, busy=2)
    eventually(lambda: ("assigned", frozenset(second.assigned)) in second.events, "the listener is told", PATIENCE)
    assert first.events[0] == ("assigned", tps)
    assert [event for event in first.events if event[0] == "revoked"] == [("revoked", frozenset(second.assigned))]


def test_static_members(broker: EmbeddedBroker, topic: str, pollers: Pollers) -> None:
    tps = all_of(topic)
    first = pollers.add(group_instance_id="one", session_timeout_ms=30_000)
    second = pollers.add(group_instance_id="two", session_timeout_ms=30_000)
    pollers.wait_shared(*tps, busy=2)
    shares = first.assigned, second.assigned
    generation = second.consumer.group_metadata().generation_id
    first.close()
    again = pollers.add(group_instance_id="one", session_timeout_ms=30_000)
    pollers.wait_shared(*tps, busy=2)
    assert (again.assigned, second.assigned) == shares
    assert second.consumer.group_metadata().generation_id == generation
    third = pollers.add(group_instance_id="one", session_timeout_ms=30_000)
    eventually(lambda: again.errors and third.assigned, "the older one is fenced", PATIENCE)
    assert isinstance(again.errors[0], FencedInstanceIdError)
    eventually(lambda: "lost" in kinds(again), "it has lost its partitions", PATIENCE)


def test_member_without_polls_leaves(topic: str, pollers: Pollers) -> None:
    tps = all_of(topic)
    first = pollers.add(max_poll_interval_ms=1500)
    second = pollers.add(max_poll_interval_ms=1500)
    pollers.wait_shared(*tps, busy=2)
    first.is_resting.set()
    eventually(lambda: second.assigned == set(tps), "the other has all", PATIENCE)
    with pytest.raises(CommitFailedError):
        first.consumer.commit({tps[0]: OffsetAndMetadata(1)})
    first.is_resting.clear()
    pollers.wait_shared(*tps, busy=2)
    assert "lost" in kinds(first)


def test_manual_commits(broker: EmbeddedBroker, topic: str) -> None:
    tps = all_of(topic)
    write(broker, topic)
    told: list[object] = []
    with Consumer(
        topic,
        bootstrap_servers=broker.bootstrap_servers,
        group_id=f"by-hand-{topic}",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    ) as consumer:
        eventually(lambda: consumer.poll(100) or consumer.assignment(), "it has partitions", PATIENCE)
        consumer.commit({tps[0]: OffsetAndMetadata(3, "a note")})
        assert consumer.committed(tps[0]) == 3
        assert consumer.committed(tps[0], metadata=True) == OffsetAndMetadata(3, "a note", -1)
        assert consumer.committed(tps[1]) is None
        for offset in range(50):
            consumer.commit_async({tps[1]: offset}, lambda offsets, error: told.append((offsets[tps[1]].offset, error)))
        eventually(lambda: consumer.poll(10) is not None and len(told) == 50, "all are told", PATIENCE)
        assert told == [(offset, None) for offset in range(50)]
        assert consumer.committed(tps[1]) == 49
        identity = consumer.group_metadata()
        assert identity.state == MemberState.STABLE == "<stable>"
        assert identity.member_id
        assert identity.generation_id > 0
    with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id=f"by-hand-{topic}") as alone:
        alone.assign([tps[0]])
        assert alone.position(tps[0]) == 3
        alone.commit({tps[0]: 2})
        assert alone.committed(tps[0]) == 2


def test_automatic_commits_with_user_assignment(broker: EmbeddedBroker, topic: str) -> None:
    tps = all_of(topic)
    write(broker, topic)
    settings = {"bootstrap_servers": broker.bootstrap_servers, "group_id": f"alone-{topic}"}
    with Consumer(auto_offset_reset="earliest", auto_commit_interval_ms=50, **settings) as consumer:
        consumer.assign(tps)
        eventually(lambda: [consumer.poll(50), consumer.committed(tps[0])][1] == 5, "it is committed by time", PATIENCE)
    write(broker, topic)
    with Consumer(auto_offset_reset="earliest", auto_commit_interval_ms=1_000_000, **settings) as consumer:
        consumer.assign(tps)
        eventually(lambda: consumer.poll(50) and consumer.position(tps[0]) == 10, "it is read", PATIENCE)
        assert consumer.committed(tps[0]) == 5
    with Consumer(**settings) as consumer:
        assert consumer.committed(tps[0]) == 10, "closing commits"


def test_group_survives_broker_restart(broker: EmbeddedBroker, topic: str, pollers: Pollers) -> None:
    tps = all_of(topic)
    write(broker, topic)
    first, second = pollers.add(), pollers.add()
    pollers.wait_shared(*tps, busy=2)
    for is_clean in (True, False):
        broker.restart(clean=is_clean)
        write(broker, topic)
        pollers.wait_shared(*tps, busy=2)
    eventually(lambda: len(set(pollers.received())) == 15 * COUNT, "all is read", PATIENCE)
    assert not first.errors + second.errors


@pytest.mark.parametrize("api", [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.OFFSET_COMMIT])
def test_group_survives_faults(broker: EmbeddedBroker, topic: str, pollers: Pollers, api: ApiKey) -> None:
    """After each single fault the group becomes stable, and all records are read."""
    tps = all_of(topic)
    faults = broker.faults
    pollers.add()
    for fault in (
        lambda: faults.drop_connection(api, times=1),
        lambda: faults.error(api, NotCoordinatorError, times=1),
        lambda: faults.error(api, CoordinatorLoadInProgressError, times=1),
        lambda: faults.error(api, RebalanceInProgressError, times=1),
        lambda: faults.delay(api, 300, times=2),
    ):
        with fault() as struck:
            pollers.add()
            write(broker, topic, 1)
            struck.wait_for_hits()
    pollers.wait_shared(*tps)
    eventually(lambda: len(set(pollers.received())) == 5 * COUNT, "all is read", PATIENCE)
    assert not [error for each in pollers.all for error in each.errors]


def test_authorization_error_is_raised_and_retried(broker: EmbeddedBroker, pollers: Pollers, topic: str) -> None:
    with broker.faults.error(ApiKey.JOIN_GROUP, GroupAuthorizationFailedError, times=1):
        first = pollers.add()
        eventually(lambda: first.errors, "the poll raises", PATIENCE)
    assert isinstance(first.errors[0], GroupAuthorizationFailedError)
    pollers.wait_shared(*all_of(topic))


def test_unsubscribe_leaves_group(broker: EmbeddedBroker, topic: str) -> None:
    with Consumer(topic, bootstrap_servers=broker.bootstrap_servers, group_id=f"leaves-{topic}") as consumer:
        eventually(lambda: consumer.poll(50) is not None and consumer.assignment(), "it has partitions", PATIENCE)
        consumer.unsubscribe()
        assert consumer.assignment() == set()
        assert consumer.group_metadata().member_id == ""
        assert consumer.group_metadata().state == "<unjoined>"
        consumer.subscribe([topic])
        eventually(lambda: consumer.poll(50) is not None and consumer.assignment(), "it has partitions", PATIENCE)


def test_pattern_matches_later_topic(broker: EmbeddedBroker, topic: str) -> None:
    prefix = f"later-{topic}"
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers, group_id=f"pattern-{topic}", metadata_max_age_ms=200
    ) as consumer:
        consumer.subscribe(pattern=f"{prefix}-.*")
        broker.create_topic(f"{prefix}-a", 2)
        expected = {TopicPartition(f"{prefix}-a", 0), TopicPartition(f"{prefix}-a", 1)}
        eventually(lambda: consumer.poll(50) is not None and consumer.assignment() == expected, "it came", PATIENCE)
        broker.create_topic(f"{prefix}-b", 1)
        expected.add(TopicPartition(f"{prefix}-b", 0))
        eventually(lambda: consumer.poll(50) is not None and consumer.assignment() == expected, "it came", PATIENCE)
