"""Metadata with fake brokers in virtual time: which requests are sent, when, and their results."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any

import pytest
from tests.support.client.fake_brokers import FakeCluster, partition
from tests.support.net.virtual_loop import run

from headrace.client.errors import KafkaConnectionError, KafkaTimeoutError
from headrace.client.metadata import Metadata, MetadataConfig
from headrace.client.metadata_cache import ClusterView, PartitionInfo
from headrace.common.errors import (
    InvalidTopicError,
    LeaderNotAvailableError,
    TopicAuthorizationFailedError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from headrace.common.ids import Uuid
from headrace.common.types import TopicPartition
from headrace.net.broker_pool import BrokerPool, NetConfig, Node
from headrace.protocol import ApiKey
from headrace.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic


class Setup:
    def __init__(self, brokers: int = 1, net: dict[str, Any] | None = None, **config: Any):
        self.cluster = FakeCluster(brokers)
        self.pool = BrokerPool(
            self.cluster.bootstrap,
            NetConfig(**(net or {})),
            dialer=self.cluster.network,
            random=random.Random(3),
        )
        self.metadata = Metadata(self.pool, MetadataConfig(**config), random=random.Random(4))

    @property
    def asked(self) -> list[list[str] | None]:
        return self.cluster.asked

    async def close(self) -> None:
        await self.metadata.close()
        await self.pool.close()


def virtual(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def call() -> None:
        run(test())

    call.__name__ = test.__name__
    return call


def now() -> float:
    return asyncio.get_running_loop().time()


# ---- full, per-topic and brokers-only requests


@virtual
async def test_topic_is_requested_by_name_and_cached() -> None:
    setup = Setup()
    setup.cluster.set_topic("a", 3)
    info = await setup.metadata.topic("a", 1000)
    assert [each.partition for each in info.partitions] == [0, 1, 2]
    assert setup.metadata.view.leader(TopicPartition("a", 1)) == Node(1, "host1", 9092)
    assert setup.metadata.view.partition_count("a") == 3
    assert await setup.metadata.topic("a", 1000) is info
    assert setup.asked == [["a"]]
    assert setup.pool.nodes == {1: Node(1, "host1", 9092)}
    await setup.close()


@virtual
async def test_update_all_requests_all_topics() -> None:
    setup = Setup()
    setup.cluster.set_topic("a")
    setup.cluster.set_topic("b", is_internal=True)
    view = await setup.metadata.update_all()
    assert list(view.names()) == ["a", "b"]
    assert list(view.names(include_internal=False)) == ["a"]
    assert setup.asked == [None]
    assert (view.cluster_id, view.controller_id) == ("the-cluster", 1)
    await setup.close()


@virtual
async def test_update_brokers_requests_no_topics() -> None:
    setup = Setup(2)
    setup.cluster.set_topic("a")
    view = await setup.metadata.update_brokers()
    assert set(view.nodes) == {1, 2}
    assert not view.topics
    assert setup.asked == [[]]
    await setup.close()


@virtual
async def test_simultaneous_requests_are_combined() -> None:
    setup = Setup()
    for name in "abc":
        setup.cluster.set_topic(name)
    infos = await asyncio.gather(*[setup.metadata.topic(name, 1000) for name in "cab"])
    assert [info.name for info in infos] == ["c", "a", "b"]
    assert setup.asked == [["a", "b", "c"]]
    await setup.close()


@virtual
async def test_update_requests_topics_in_use_or_brokers_only() -> None:
    setup = Setup()
    setup.cluster.set_topic("a")
    await setup.metadata.update()
    setup.metadata.track(["a"])
    await setup.metadata.update()
    setup.metadata.track_all()
    await setup.metadata.update()
    assert setup.asked[0] == []
    assert setup.asked[-1] is None
    assert ["a"] in setup.asked
    await setup.close()


@virtual
async def test_request_update_without_topics_requests_brokers_only() -> None:
    setup = Setup()
    setup.metadata.request_update()
    await setup.metadata.wait_for_change(1000)
    assert setup.asked == [[]]
    await setup.close()


# ---- topics in flight


@virtual
async def test_topic_in_flight_is_not_requested_twice() -> None:
    setup = Setup()
    setup.cluster.brokers[0].latency = 1.0
    setup.cluster.set_topic("a")
    setup.cluster.set_topic("b")
    first = asyncio.create_task(setup.metadata.topic("a", 20_000))
    await asyncio.sleep(2.5)
    second = asyncio.create_task(setup.metadata.topic("a", 20_000))
    third = asyncio.create_task(setup.metadata.topic("b", 20_000))
    await asyncio.gather(first, second, third)
    assert [names.count("a") for names in setup.asked if names] == [1, 0]
    await setup.close()


@virtual
async def test_topic_is_requested_again_if_stale_while_in_flight() -> None:
    setup = Setup()
    setup.cluster.set_topic("a")
    await setup.metadata.topic("a", 1000)
    setup.cluster.brokers[0].latency = 1.0
    setup.metadata.request_update(["a"])
    await asyncio.sleep(0.5)
    setup.metadata.request_update(["a"])  # the response in flight may be older than this
    await asyncio.sleep(5)
    assert setup.asked == [["a"]] * 3
    await setup.close()


# ---- expiry


@virtual
async def test_tracked_topics_are_refreshed_when_expired() -> None:
    setup = Setup(max_age_ms=10_000)
    setup.cluster.set_topic("a")
    setup.metadata.track(["a"])
    await asyncio.sleep(9)
    assert setup.asked == [["a"]]
    await asyncio.sleep(20)
    assert len(setup.asked) == 3
    setup.metadata.untrack(["a"])
    await asyncio.sleep(15)
    assert setup.metadata.view.topic("a") is None
    await setup.close()


@virtual
async def test_expired_metadata_is_requested_again() -> None:
    setup = Setup(max_age_ms=10_000, max_idle_ms=100_000)
    setup.cluster.set_topic("a")
    await setup.metadata.topic("a", 1000)
    setup.cluster.set_topic("a", 5)
    assert setup.metadata.view.partition_count("a") == 1
    await asyncio.sleep(10.5)
    assert len((await setup.metadata.topic("a", 1000)).partitions) == 5
    await setup.close()


@virtual
async def test_brokers_are_refreshed_without_topics_in_use() -> None:
    setup = Setup(max_age_ms=10_000)
    await setup.metadata.update_brokers()
    setup.metadata.request_update()
    await asyncio.sleep(35)
    assert all(names == [] for names in setup.asked)
    assert 4 <= len(setup.asked) <= 5
    await setup.close()


# ---- forgotten and excluded topics


@virtual
async def test_unused_topic_is_forgotten() -> None:
    setup = Setup(max_age_ms=10_000, max_idle_ms=30_000)
    setup.cluster.set_topic("a")
    setup.cluster.set_topic("b")
    await setup.metadata.topic("a", 1000)
    await setup.metadata.topic("b", 1000)
    for _ in range(10):
        await asyncio.sleep(5)
        setup.metadata.use("a")
    assert setup.metadata.view.topic("a") is not None
    assert setup.metadata.view.topic("b") is None
    assert setup.asked[-1] == ["a"]
    await setup.close()


@virtual
async def test_deleted_topic_becomes_unknown_after_full_response() -> None:
    setup = Setup()
    setup.cluster.set_topic("a")
    setup.cluster.set_topic("b")
    setup.metadata.track(["b"])
    await setup.metadata.update_all()
    setup.cluster.topics.clear()
    view = await setup.metadata.update_all()
    assert view.topic("a") is None
    info = view.topic("b")
    assert info is not None
    assert info.error is UnknownTopicOrPartitionError
    assert view.partition_count("b") is None
    assert list(view.names()) == []
    await setup.close()


@virtual
async def test_excluded_topics_do_not_exist() -> None:
    setup = Setup(excluded=(r"^secret\.", "^b$"))
    for name in ("a", "b", "bc", "secret.x"):
        setup.cluster.set_topic(name)
    assert list((await setup.metadata.update_all()).names()) == ["a", "bc"]
    with pytest.raises(
        UnknownTopicOrPartitionError, match=r"Topic 'secret.x' is excluded by this client's topic.blacklist"
    ):
        await setup.metadata.topic("secret.x", 1000)
    setup.metadata.track(["b"])
    await asyncio.sleep(5)
    assert setup.asked == [None]
    await setup.close()


# ---- missing leaders


@virtual
async def test_missing_leader_is_requested_with_backoff() -> None:
    setup = Setup(fast_interval_ms=100, retry_backoff_max_ms=1000)
    setup.cluster.set_topic("a", [partition(0), partition(1, leader=-1, error=LeaderNotAvailableError.code)])
    setup.cluster.set_topic("b")
    setup.metadata.track(["a", "b"])
    await asyncio.sleep(6)
    requests = setup.cluster.brokers[0].asked(ApiKey.METADATA)
    assert setup.asked[0] == ["a", "b"]
    assert all(names == ["a"] for names in setup.asked[1:])
    gaps = [later.at - sooner.at for sooner, later in pairwise(requests)]
    for gap, wanted in zip(gaps, [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0], strict=False):
        assert wanted * 0.8 <= gap <= wanted * 1.2 + 0.01
    setup.cluster.set_topic("a", 2)
    await setup.metadata.wait_for(lambda view: view.leader(TopicPartition("a", 1)) is not None, 5000)
    count = len(setup.asked)
    await asyncio.sleep(60)
    assert len(setup.asked) == count
    await setup.close()


@virtual
async def test_unknown_broker_as_leader_counts_as_missing() -> None:
    setup = Setup(2)
    setup.cluster.members = setup.cluster.brokers[:1]
    setup.cluster.set_topic("a", [partition(0, leader=2)])
    setup.metadata.track(["a"])
    await asyncio.sleep(1)
    assert setup.metadata.view.leader(TopicPartition("a", 0)) is None
    setup.cluster.members = setup.cluster.brokers
    await setup.metadata.wait_for(lambda view: view.leader(TopicPartition("a", 0)), 5000)
    await setup.close()


@virtual
async def test_topic_without_leaders_is_known() -> None:
    setup = Setup()
    setup.cluster.set_topic("a", [partition(0, leader=-1), partition(1)])
    assert len((await setup.metadata.topic("a", 1000)).partitions) == 2
    await setup.close()


# ---- unknown topics


@virtual
async def test_waits_for_new_topic() -> None:
    setup = Setup()
    asking = asyncio.create_task(setup.metadata.topic("a", 20_000))
    await asyncio.sleep(5)
    setup.cluster.set_topic("a")
    assert (await asking).name == "a"
    assert 5 <= len(setup.asked) <= 15
    await setup.close()


@virtual
async def test_unknown_topic_raises_after_propagation_time() -> None:
    setup = Setup(propagation_max_ms=3000)
    since = now()
    with pytest.raises(UnknownTopicOrPartitionError, match="Topic 'a' does not exist"):
        await setup.metadata.topic("a", 60_000)
    assert 3 <= now() - since < 5
    await setup.close()


@virtual
async def test_unknown_topic_raises_at_callers_deadline() -> None:
    setup = Setup()
    since = now()
    with pytest.raises(UnknownTopicOrPartitionError, match="Topic 'a' does not exist"):
        await setup.metadata.topic("a", 2000)
    assert now() - since == pytest.approx(2.0)
    await setup.close()


@virtual
async def test_unknown_tracked_topic_is_requested_occasionally() -> None:
    setup = Setup(propagation_max_ms=3000)
    setup.metadata.track(["a"])
    await asyncio.sleep(10)
    count = len(setup.asked)
    await asyncio.sleep(100)
    assert 8 <= len(setup.asked) - count <= 12
    await setup.close()


@virtual
async def test_unauthorized_topic_and_invalid_name_raise() -> None:
    setup = Setup()
    setup.cluster.topics["a"] = MetadataResponseTopic(name="a", error_code=TopicAuthorizationFailedError.code)
    with pytest.raises(TopicAuthorizationFailedError, match="Topic 'a'"):
        await setup.metadata.topic("a", 5000)
    for name in ("", ".", "a b", "ä", "x" * 250):
        with pytest.raises(InvalidTopicError, match="is invalid"):
            await setup.metadata.topic(name, 5000)
    assert setup.asked == [["a"]]
    await setup.close()


@virtual
async def test_topics_are_auto_created_only_if_allowed() -> None:
    for allowed in (False, True):
        setup = Setup(allow_auto_create=allowed)
        setup.cluster.set_topic("a")
        await setup.metadata.topic("a", 1000)
        await setup.metadata.update_all()
        first, second = setup.cluster.brokers[0].asked(ApiKey.METADATA)
        assert first.message.allow_auto_topic_creation is allowed
        assert second.message.allow_auto_topic_creation is False
        await setup.close()


@virtual
async def test_refresh_does_not_recreate_deleted_topic() -> None:
    setup = Setup(allow_auto_create=True, max_age_ms=10_000)
    setup.cluster.set_topic("a")
    setup.metadata.track(["a", "b"])
    await asyncio.sleep(1)
    setup.cluster.set_topic("b")
    await setup.metadata.wait_for(lambda view: view.partition_count("b"), 5000)
    assert setup.cluster.brokers[0].asked(ApiKey.METADATA)[-1].message.allow_auto_topic_creation
    setup.cluster.topics.clear()
    before = len(setup.asked)
    await asyncio.sleep(60)
    requests = setup.cluster.brokers[0].asked(ApiKey.METADATA)[before:]
    assert requests
    assert not any(each.message.allow_auto_topic_creation for each in requests)
    asking = asyncio.create_task(setup.metadata.topic("a", 5000))  # a producer needs it
    await asyncio.sleep(3)
    assert setup.cluster.brokers[0].asked(ApiKey.METADATA)[-1].message.allow_auto_topic_creation
    with pytest.raises(UnknownTopicOrPartitionError):
        await asking
    await setup.close()


@pytest.mark.parametrize("newest", range(1, 14))
def test_supports_all_metadata_versions(newest: int) -> None:
    async def main() -> None:
        setup = Setup(2)
        setup.cluster.set_topic("a", [partition(0, leader=2, epoch=3)], topic_id=Uuid(int=5))
        for broker in setup.cluster.brokers:
            broker.versions[ApiKey.METADATA] = (0, newest)
        info = await setup.metadata.topic("a", 5000)
        assert info.partitions[0].leader == 2
        assert info.partitions[0].leader_epoch == (3 if newest >= 7 else -1)
        assert info.id == Uuid(int=5 if newest >= 10 else 0)
        view = await setup.metadata.update_all()
        assert list(view.names()) == ["a"]
        assert set((await setup.metadata.update_brokers()).nodes) == {1, 2}
        await setup.close()

    run(main())


@virtual
async def test_unsupported_broker_version_raises() -> None:
    setup = Setup()
    setup.cluster.brokers[0].versions[ApiKey.METADATA] = (0, 0)
    with pytest.raises(
        UnsupportedVersionError, match="Metadata versions 0 to 0, but this client requires one of 1 to 13"
    ):
        await setup.metadata.update_all()
    await setup.close()


@virtual
async def test_permanent_errors_fail_waiters_at_once() -> None:
    setup = Setup()
    setup.cluster.brokers[0].versions[ApiKey.METADATA] = (0, 0)
    since = now()
    with pytest.raises(UnsupportedVersionError):
        await setup.metadata.topic("a", 60_000)
    assert now() - since < 1
    await setup.close()


# ---- topic ids


@virtual
async def test_topic_by_id() -> None:
    setup = Setup()
    first, second, third = (Uuid(int=number) for number in (1, 2, 3))
    setup.cluster.set_topic("a", topic_id=first)
    setup.cluster.set_topic("b", topic_id=second)
    info = await setup.metadata.topic("a", 1000)
    assert info.id == first
    assert setup.metadata.view.topic_name(first) == "a"
    assert setup.metadata.view.topic_name(second) is None
    assert (await setup.metadata.topic_by_id(second, 1000)).name == "b"
    assert setup.metadata.view.topic_id("b") == second
    with pytest.raises(UnknownTopicIdError):
        await setup.metadata.topic_by_id(third, 1000)
    await setup.close()


@virtual
async def test_topic_by_id_needs_broker_support() -> None:
    setup = Setup()
    setup.cluster.brokers[0].versions[ApiKey.METADATA] = (0, 9)
    setup.cluster.set_topic("a", topic_id=Uuid(int=1))
    assert (await setup.metadata.topic("a", 1000)).id == Uuid(int=0)
    with pytest.raises(UnsupportedVersionError):
        await setup.metadata.topic_by_id(Uuid(int=1), 1000)
    await setup.close()


@virtual
async def test_recreated_topic_starts_with_its_own_epochs() -> None:
    setup = Setup()
    setup.cluster.set_topic("a", [partition(0, epoch=7)], topic_id=Uuid(int=1))
    await setup.metadata.topic("a", 1000)
    setup.cluster.set_topic("a", [partition(0, epoch=0)], topic_id=Uuid(int=2))
    view = await setup.metadata.update(["a"])
    assert view.leader_epoch(TopicPartition("a", 0)) == 0
    assert view.topic_name(Uuid(int=1)) is None
    await setup.close()


# ---- leaders


@virtual
async def test_lagging_broker_does_not_restore_old_leader() -> None:
    setup = Setup(2)
    tp = TopicPartition("a", 0)
    setup.cluster.set_topic("a", [partition(0, leader=2, epoch=5)])
    await setup.metadata.topic("a", 1000)
    setup.cluster.set_topic("a", [partition(0, leader=1, epoch=4)])
    view = await setup.metadata.update(["a"])
    assert view.leader_epoch(tp) == 5
    leader = view.leader(tp)
    assert leader is not None
    assert leader.id == 2
    await setup.close()


@pytest.mark.parametrize("is_full", [False, True])
def test_missing_topic_keeps_its_epochs_for_its_return(is_full: bool) -> None:
    """Brokers that lag say that the topic does not exist, and then name a former leader."""

    async def main() -> None:
        setup = Setup(2)
        tp = TopicPartition("a", 0)
        setup.cluster.set_topic("a", [partition(0, leader=2, epoch=5)], topic_id=Uuid(int=1))
        await setup.metadata.topic("a", 1000)
        del setup.cluster.topics["a"]
        for _ in range(2):
            view = await (setup.metadata.update_all() if is_full else setup.metadata.update(["a"]))
            info = view.topic("a")
            assert info is not None
            assert (info.error, info.partitions) == (UnknownTopicOrPartitionError, ())
        setup.cluster.set_topic("a", [partition(0, leader=1, epoch=4)], topic_id=Uuid(int=1))
        view = await setup.metadata.update(["a"])
        assert view.partition(tp) == PartitionInfo("a", 0, 2, 5, (2,), (2,), ())
        info = view.topic("a")
        assert info is not None
        assert (info.error, info.before_error) == (None, None)
        await setup.close()

    run(main())


@pytest.mark.parametrize(("before", "after"), [(1, 2), (0, 0), (0, 2), (1, 0)])
def test_missing_topic_may_return_as_another(before: int, after: int) -> None:
    async def main() -> None:
        setup = Setup(2)
        setup.cluster.set_topic("a", [partition(0, leader=2, epoch=5)], topic_id=Uuid(int=before))
        await setup.metadata.topic("a", 1000)
        del setup.cluster.topics["a"]
        await setup.metadata.update(["a"])
        setup.cluster.set_topic("a", [partition(0, leader=1, epoch=0)], topic_id=Uuid(int=after))
        view = await setup.metadata.update(["a"])
        assert view.leader_epoch(TopicPartition("a", 0)) == 0
        await setup.close()

    run(main())


@virtual
async def test_leader_without_epoch_is_accepted() -> None:
    setup = Setup(2)
    tp = TopicPartition("a", 0)
    setup.cluster.set_topic("a", [partition(0, leader=2, epoch=5)])
    await setup.metadata.topic("a", 1000)
    setup.cluster.set_topic("a", [partition(0, leader=1, epoch=-1)])
    view = await setup.metadata.update(["a"])
    leader = view.leader(tp)
    assert leader is not None
    assert (leader.id, view.leader_epoch(tp)) == (1, -1)
    setup.metadata.note_leader_epoch(tp, 5)
    assert setup.metadata.view is view
    await setup.close()


@virtual
async def test_leader_older_than_a_known_epoch_is_not_used() -> None:
    setup = Setup(2)
    tp = TopicPartition("a", 0)
    setup.cluster.set_topic("a", [partition(0, leader=1, epoch=4)])
    setup.metadata.track(["a"])
    await setup.metadata.topic("a", 1000)
    setup.metadata.note_leader_epoch(tp, 4)
    assert setup.metadata.view.leader(tp) is not None
    setup.metadata.note_leader_epoch(tp, 6)
    assert (setup.metadata.view.leader(tp), setup.metadata.view.leader_epoch(tp)) == (None, 6)
    await setup.metadata.update(["a"])
    assert setup.metadata.view.leader(tp) is None, "the metadata is still that of epoch 4"
    setup.cluster.set_topic("a", [partition(0, leader=2, epoch=6)])
    view = await setup.metadata.wait_for(lambda view: view.leader(tp), 5000)
    leader = view.leader(tp)
    assert leader is not None
    assert leader.id == 2
    await setup.close()


@virtual
async def test_response_names_leader_of_a_known_epoch() -> None:
    setup = Setup(2)
    tp = TopicPartition("a", 0)
    setup.cluster.set_topic("a", [partition(0, leader=1, epoch=4)])
    await setup.metadata.topic("a", 1000)
    setup.metadata.note_leader_epoch(tp, 6)
    assert not setup.metadata.note_leader(tp, 1, 5)
    assert not setup.metadata.note_leader(tp, -1, 6)
    assert setup.metadata.note_leader(tp, 2, 6)
    assert setup.metadata.view.leader(tp) == setup.metadata.view.nodes[2]
    await setup.close()


@virtual
async def test_leader_from_another_response_is_applied() -> None:
    setup = Setup()
    tp = TopicPartition("a", 0)
    setup.cluster.set_topic("a", [partition(0, leader=1, epoch=4)])
    await setup.metadata.topic("a", 1000)
    changes: list[tuple[int, int]] = []
    setup.metadata.on_change(lambda old, new: changes.append((old.leader_epoch(tp), new.leader_epoch(tp))))
    node = Node(8, "new", 9092)
    assert not setup.metadata.note_leader(tp, 8, 4, node)
    assert setup.metadata.note_leader(tp, 8, 5, node)
    assert setup.metadata.view.leader(tp) == node
    assert setup.pool.nodes[8] == node
    assert not setup.metadata.note_leader(TopicPartition("other", 0), 8, 5, node)
    assert changes == [(4, 5)]
    await setup.close()


@virtual
async def test_repeated_update_requests_back_off() -> None:
    setup = Setup(fast_interval_ms=100)
    setup.cluster.set_topic("a")
    await setup.metadata.topic("a", 1000)
    for _ in range(1000):
        setup.metadata.request_update(["a"])
        await asyncio.sleep(0.01)
    assert 10 <= len(setup.asked) <= 20
    setup.cluster.set_topic("a", [partition(0, epoch=1)])
    await asyncio.sleep(10)
    count = len(setup.asked)
    setup.metadata.request_update(["a"])
    await asyncio.sleep(0.05)
    assert len(setup.asked) == count + 1  # at once after a while without requests
    await setup.close()


# ---- waiting for changes


@virtual
async def test_wait_for_change() -> None:
    setup = Setup()
    waiting = asyncio.create_task(setup.metadata.wait_for_change(10_000))
    await asyncio.sleep(1)
    assert not waiting.done()
    await setup.metadata.update_brokers()
    assert (await waiting) is setup.metadata.view
    version = setup.metadata.view.version
    assert (await setup.metadata.wait_for_change(1000, since=version - 1)).version == version
    await setup.close()


@virtual
async def test_wait_for_condition_times_out() -> None:
    setup = Setup()
    await setup.metadata.update_brokers()
    since = now()
    with pytest.raises(KafkaTimeoutError, match="Metadata did not show two brokers within 3000 ms"):
        await setup.metadata.wait_for(lambda view: len(view.nodes) == 2, 3000, "two brokers")
    assert now() - since == pytest.approx(3.0)
    assert (await setup.metadata.wait_for(lambda view: len(view.nodes) == 1, 0)) is setup.metadata.view
    await setup.close()


@virtual
async def test_failing_condition_fails_only_its_waiter() -> None:
    setup = Setup()

    def broken(view: ClusterView) -> bool:
        return 1 / len(view.nodes) > 0 if view.version else False

    setup.cluster.set_topic("a")
    waiting = asyncio.create_task(setup.metadata.wait_for(lambda view: view.version and 1 / 0, 5000))
    other = asyncio.create_task(setup.metadata.wait_for(broken, 5000))
    await asyncio.sleep(0)
    await setup.metadata.update_brokers()
    with pytest.raises(ZeroDivisionError):
        await waiting
    await other
    await setup.close()


@virtual
async def test_listeners_are_notified_until_removed() -> None:
    setup = Setup()
    seen: list[int] = []

    def fails(old: ClusterView, new: ClusterView) -> None:
        raise ValueError("a listener")

    setup.metadata.on_change(fails)
    remove = setup.metadata.on_change(lambda old, new: seen.append(new.version))
    await setup.metadata.update_brokers()
    remove()
    await setup.metadata.update_brokers()
    assert seen == [1]
    await setup.close()


# ---- failures


@virtual
async def test_unreachable_brokers_time_out_with_the_last_error() -> None:
    setup = Setup()
    setup.cluster.brokers[0].accepts = False
    with pytest.raises(
        KafkaTimeoutError, match="Topic 'a' not present in metadata after 5000 ms; the last error: could not connect"
    ):
        await setup.metadata.topic("a", 5000)
    assert len(setup.cluster.brokers[0].dials) <= 12
    setup.cluster.brokers[0].accepts = True
    setup.cluster.set_topic("a")
    assert (await setup.metadata.topic("a", 5000)).name == "a"
    await setup.close()


@virtual
async def test_update_retries_until_its_deadline() -> None:
    setup = Setup()
    setup.cluster.brokers[0].accepts = False
    asking = asyncio.create_task(setup.metadata.update_all(30_000))
    await asyncio.sleep(5)
    setup.cluster.brokers[0].accepts = True
    assert (await asking).nodes
    with pytest.raises(KafkaTimeoutError, match="Failed to update metadata after 1 ms"):
        await setup.metadata.update_all(1)
    await setup.close()


@virtual
async def test_stuck_broker_does_not_block_requests() -> None:
    setup = Setup(3)
    setup.cluster.set_topic("a")
    await setup.metadata.update_brokers()
    stuck = setup.cluster.brokers[0]
    stuck.on(ApiKey.METADATA, lambda _: None)
    for broker in setup.cluster.brokers[1:]:
        broker.accepts = False  # so that the request goes to the stuck broker
    for node_id in (2, 3):
        with pytest.raises(KafkaConnectionError):
            await setup.pool.connect(node_id)
    asking = asyncio.create_task(setup.metadata.topic("a", 20_000))
    await asyncio.sleep(1)
    for broker in setup.cluster.brokers[1:]:
        broker.accepts = True
    since = now()
    await asking
    assert now() - since < 6
    await setup.close()


@virtual
async def test_response_without_brokers_is_retried() -> None:
    setup = Setup()
    members, setup.cluster.members = setup.cluster.members, []
    asking = asyncio.create_task(setup.metadata.update_brokers(10_000))
    await asyncio.sleep(2)
    setup.cluster.members = members
    assert set((await asking).nodes) == {1}
    await setup.close()


@virtual
async def test_broker_may_request_rebootstrap() -> None:
    setup = Setup(2)
    await setup.metadata.update_brokers()
    replies = [MetadataResponse(error_code=129)]
    for broker in setup.cluster.brokers:
        broker.on(ApiKey.METADATA, lambda request: replies.pop() if replies else setup.cluster.metadata(request))
    await setup.metadata.update_brokers()
    assert not replies
    assert set(setup.pool.nodes) == {1, 2}
    await setup.close()


@virtual
async def test_request_to_rebootstrap_is_only_retried_if_rebootstrapping_is_off() -> None:
    setup = Setup(2, net={"rebootstrap": False})
    await setup.metadata.update_brokers()
    replies = [MetadataResponse(error_code=129)]
    seen = []

    def respond(request: Any) -> MetadataResponse:
        seen.append(set(setup.pool.nodes))
        return replies.pop() if replies else setup.cluster.metadata(request)

    for broker in setup.cluster.brokers:
        broker.on(ApiKey.METADATA, respond)
    await setup.metadata.update_brokers()
    assert seen == [{1, 2}, {1, 2}]
    await setup.close()


@virtual
async def test_client_rebootstraps_after_long_time_without_metadata() -> None:
    setup = Setup(2, rebootstrap_trigger_ms=10_000)
    await setup.metadata.update_brokers()
    setup.metadata.track(["a"])
    for broker in setup.cluster.brokers:
        broker.accepts = False
        broker.hang_up()
    with pytest.raises(KafkaTimeoutError):
        await setup.metadata.update_brokers(15_000)
    assert not setup.pool.nodes
    await setup.close()


def test_nothing_is_logged_or_done_if_rebootstrapping_is_off(caplog: pytest.LogCaptureFixture) -> None:
    async def without_rebootstrapping() -> None:
        setup = Setup(2, net={"rebootstrap": False}, rebootstrap_trigger_ms=10_000)
        await setup.metadata.update_brokers()
        for broker in setup.cluster.brokers:
            broker.accepts = False
            broker.hang_up()
        with pytest.raises(KafkaTimeoutError):
            await setup.metadata.update_brokers(15_000)
        assert set(setup.pool.nodes) == {1, 2}
        await setup.close()

    with caplog.at_level("INFO"):
        run(without_rebootstrapping())
    assert "rebootstrapping" not in caplog.text


@virtual
async def test_unanswered_request_for_all_topics_goes_to_another_broker() -> None:
    setup = Setup(2)
    setup.cluster.set_topic("a")
    await setup.metadata.update_brokers()
    asked: list[int] = []

    def answer(broker: int) -> Callable[[Any], Any]:
        def metadata(request: Any) -> Any:
            asked.append(broker)
            return setup.cluster.metadata(request) if len(asked) > 1 else None

        return metadata

    for number, broker in enumerate(setup.cluster.brokers):
        broker.on(ApiKey.METADATA, answer(number))
    setup.metadata.track_all()
    await setup.metadata.wait_for(lambda view: view.topic("a") is not None, 20_000)
    assert len(asked) >= 2
    assert asked[0] != asked[1]
    await setup.close()


@virtual
async def test_close_fails_waiters() -> None:
    setup = Setup()
    setup.cluster.brokers[0].on(ApiKey.METADATA, lambda _: None)
    waiting = [
        asyncio.create_task(setup.metadata.topic("a", 60_000)),
        asyncio.create_task(setup.metadata.wait_for_change(60_000)),
        asyncio.create_task(setup.metadata.update_all(60_000)),
    ]
    await asyncio.sleep(1)
    await setup.close()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(result) for result in results] == [KafkaConnectionError] * 3
