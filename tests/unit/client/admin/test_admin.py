"""The admin client with fake brokers in virtual time: several brokers, old versions, moving leaders and coordinators,
timeouts."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.support.client.fake_brokers import FakeBroker, FakeCluster, partition
from tests.support.net.virtual_loop import run

from headrace.admin import ConfigResource, MemberToRemove, NewTopic, OffsetSpec
from headrace.client.admin.core import AdminCore
from headrace.client.config.admin import ADMIN_KEYS
from headrace.client.core import ClientCore
from headrace.client.errors import IllegalArgumentError, IllegalStateError, KafkaTimeoutError
from headrace.common.errors import (
    BrokerIdNotRegisteredError,
    CoordinatorLoadInProgressError,
    GroupAuthorizationFailedError,
    NotControllerError,
    NotCoordinatorError,
    NotLeaderForPartitionError,
    TopicAlreadyExistsError,
    UnsupportedVersionError,
)
from headrace.common.types import TopicPartition
from headrace.protocol import ApiKey
from headrace.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from headrace.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from headrace.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from headrace.protocol.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from headrace.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsResponse
from headrace.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from headrace.protocol.messages.list_groups import ListedGroup, ListGroupsResponse
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from headrace.protocol.messages.unregister_broker import UnregisterBrokerResponse


class Lab:
    """An admin client and its brokers."""

    def __init__(self, brokers: int = 1, **config: Any):
        self.cluster = FakeCluster(brokers)
        self.brokers = self.cluster.brokers
        self.coordinators: dict[str, int] = {}
        for broker in self.brokers:
            broker.on(ApiKey.FIND_COORDINATOR, self.find_coordinator)
        host, port = self.cluster.bootstrap[0]
        values = ADMIN_KEYS.load(bootstrap_servers=f"{host}:{port}", **config)
        self.admin = AdminCore.__new__(AdminCore)
        self.admin.core = ClientCore(values, dialer=self.cluster.network)

    def find_coordinator(self, request: Any) -> FindCoordinatorResponse:
        coordinators = []
        for key in request.coordinator_keys or [request.key]:
            broker = self.brokers[self.coordinators.get(key, 1) - 1]
            coordinators.append(Coordinator(key=key, node_id=broker.id, host=broker.host, port=broker.port))
        first = coordinators[0]
        return FindCoordinatorResponse(
            coordinators=coordinators, node_id=first.node_id, host=first.host, port=first.port
        )

    def on_all(self, api_key: ApiKey, handler: Callable[[FakeBroker, Any], Any]) -> None:
        for broker in self.brokers:
            broker.on(api_key, lambda request, broker=broker: handler(broker, request))

    def asked(self, api_key: ApiKey) -> list[int]:
        """Returns the brokers that received requests, in order."""
        requests = [(each.at, broker.id) for broker in self.brokers for each in broker.asked(api_key)]
        return [broker_id for _, broker_id in sorted(requests)]


def virtual(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def call() -> None:
        run(test())

    call.__name__ = test.__name__
    return call


def created(request: Any, code: int = 0) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[CreatableTopicResult(name=each.name, error_code=code, error_message=None) for each in request.topics]
    )


# ---- controller


@virtual
async def test_request_goes_to_controller_and_follows_its_change() -> None:
    lab = Lab(2)

    def create(broker: FakeBroker, request: Any) -> CreateTopicsResponse:
        if broker.id == 1:
            lab.cluster.members.reverse()  # from now on the other broker is the controller
            return created(request, NotControllerError.code)
        return created(request)

    lab.on_all(ApiKey.CREATE_TOPICS, create)
    results = await lab.admin.create_topics(["a", "b"], wait_for_metadata=False)
    assert results.errors == {}
    assert lab.asked(ApiKey.CREATE_TOPICS) == [1, 2]
    await lab.admin.close()


@virtual
async def test_only_failed_items_are_retried() -> None:
    lab = Lab()
    asked: list[list[str]] = []

    def create(broker: FakeBroker, request: Any) -> CreateTopicsResponse:
        names = [each.name for each in request.topics]
        asked.append(names)
        codes = {"a": 0, "b": TopicAlreadyExistsError.code, "c": NotControllerError.code if len(asked) < 3 else 0}
        return CreateTopicsResponse(topics=[CreatableTopicResult(name=name, error_code=codes[name]) for name in names])

    lab.on_all(ApiKey.CREATE_TOPICS, create)
    results = await lab.admin.create_topics(["a", "b", "c"], raise_errors=False, wait_for_metadata=False)
    assert asked == [["a", "b", "c"], ["c"], ["c"]]
    assert list(results) == ["a", "b", "c"]
    assert list(results.errors) == ["b"]
    with pytest.raises(TopicAlreadyExistsError) as caught:
        await lab.admin.create_topics(["a", "b"], wait_for_metadata=False)
    assert {name: result.error for name, result in caught.value.results.items()} == {"a": None, "b": caught.value}
    assert TopicAlreadyExistsError("of another call").results == {}
    await lab.admin.close()


@virtual
async def test_last_error_is_the_result_at_the_deadline() -> None:
    lab = Lab()
    lab.on_all(ApiKey.CREATE_TOPICS, lambda _, request: created(request, NotControllerError.code))
    with pytest.raises(NotControllerError):
        await lab.admin.create_topics(["a"], timeout_ms=3000)
    assert 4 <= len(lab.asked(ApiKey.CREATE_TOPICS)) <= 10
    await lab.admin.close()


@virtual
async def test_no_response_raises_timeout() -> None:
    lab = Lab(request_timeout_ms=400)
    lab.on_all(ApiKey.CREATE_TOPICS, lambda _, request: None)
    loop = asyncio.get_running_loop()
    since = loop.time()
    with pytest.raises(
        KafkaTimeoutError, match=r"creating topics took longer than 3000 ms; the last error: .*did not respond"
    ):
        await lab.admin.create_topics(["a"], timeout_ms=3000)
    assert 2.0 <= loop.time() - since <= 3.01
    await lab.admin.close()


@virtual
async def test_unreachable_broker_raises_timeout() -> None:
    lab = Lab()
    lab.brokers[0].accepts = False
    with pytest.raises(KafkaTimeoutError, match="could not connect"):
        await lab.admin.list_topics(timeout_ms=1000)
    with pytest.raises(KafkaTimeoutError, match="could not connect"):
        await lab.admin.describe_cluster(timeout_ms=1000)
    with pytest.raises(KafkaTimeoutError):
        await lab.admin.create_topics(["a"], timeout_ms=1000)
    await lab.admin.close()


# ---- leaders


def offsets_of(request: Any, code: int = 0) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=each.partition_index, error_code=code, offset=100 + each.partition_index
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


@virtual
async def test_each_leader_receives_its_own_partitions() -> None:
    lab = Lab(3)
    lab.cluster.set_topic("a", [partition(number, leader=number + 1) for number in range(3)])
    lab.on_all(ApiKey.LIST_OFFSETS, lambda _, request: offsets_of(request))
    specs = {TopicPartition("a", number): OffsetSpec.LATEST for number in range(3)}
    results = await lab.admin.list_partition_offsets(specs)
    assert [each.offset for each in results.values()] == [100, 101, 102]
    assert sorted(lab.asked(ApiKey.LIST_OFFSETS)) == [1, 2, 3]
    await lab.admin.close()


@virtual
async def test_moved_leader_is_found_again() -> None:
    lab = Lab(2)
    lab.cluster.set_topic("a", [partition(0, leader=1, epoch=1), partition(1, leader=2, epoch=1)])

    def answer(broker: FakeBroker, request: Any) -> ListOffsetsResponse:
        if broker.id == 1:
            lab.cluster.set_topic("a", [partition(0, leader=2, epoch=2), partition(1, leader=2, epoch=1)])
            return offsets_of(request, NotLeaderForPartitionError.code)
        return offsets_of(request)

    lab.on_all(ApiKey.LIST_OFFSETS, answer)
    tps = [TopicPartition("a", 0), TopicPartition("a", 1)]
    results = await lab.admin.list_partition_offsets(dict.fromkeys(tps, OffsetSpec.LATEST))
    assert [results[tp].offset for tp in tps] == [100, 101]
    assert lab.asked(ApiKey.LIST_OFFSETS) == [1, 2, 2]
    await lab.admin.close()


@virtual
async def test_unreachable_leader_does_not_affect_other_partitions() -> None:
    lab = Lab(2)
    lab.cluster.set_topic("a", [partition(0, leader=1), partition(1, leader=2)])
    lab.on_all(ApiKey.LIST_OFFSETS, lambda _, request: offsets_of(request))
    lab.brokers[1].accepts = False
    asyncio.get_running_loop().call_later(2, setattr, lab.brokers[1], "accepts", True)
    tps = [TopicPartition("a", 0), TopicPartition("a", 1)]
    results = await lab.admin.list_partition_offsets(dict.fromkeys(tps, OffsetSpec.LATEST))
    assert [results[tp].offset for tp in tps] == [100, 101]
    assert lab.asked(ApiKey.LIST_OFFSETS).count(1) == 1
    await lab.admin.close()


# ---- coordinators


@virtual
async def test_each_group_request_goes_to_its_coordinator() -> None:
    lab = Lab(2)
    lab.coordinators = {"g1": 1, "g2": 2}
    lab.on_all(
        ApiKey.DESCRIBE_GROUPS,
        lambda broker, request: DescribeGroupsResponse(
            groups=[DescribedGroup(group_id=name, group_state=f"on {broker.id}") for name in request.groups]
        ),
    )
    results = await lab.admin.describe_groups(["g1", "g2"])
    assert [each.state for each in results.values()] == ["on 1", "on 2"]
    assert results["g2"].coordinator is not None
    assert results["g2"].coordinator.id == 2
    await lab.admin.close()


@virtual
async def test_moved_or_loading_coordinator_is_retried() -> None:
    lab = Lab(2)
    lab.coordinators = {"g": 1}
    answers = [NotCoordinatorError.code, CoordinatorLoadInProgressError.code, CoordinatorLoadInProgressError.code, 0]

    def delete(broker: FakeBroker, request: Any) -> DeleteGroupsResponse:
        lab.coordinators = {"g": 2}
        return DeleteGroupsResponse(results=[DeletableGroupResult(group_id="g", error_code=answers.pop(0))])

    lab.on_all(ApiKey.DELETE_GROUPS, delete)
    await lab.admin.delete_groups(["g"])
    assert lab.asked(ApiKey.DELETE_GROUPS) == [1, 2, 2, 2]
    await lab.admin.close()


@virtual
async def test_error_of_one_group_does_not_affect_others() -> None:
    lab = Lab()
    codes = {"good": 0, "bad": GroupAuthorizationFailedError.code}
    lab.on_all(
        ApiKey.DELETE_GROUPS,
        lambda _, request: DeleteGroupsResponse(
            results=[DeletableGroupResult(group_id=name, error_code=codes[name]) for name in request.groups_names]
        ),
    )
    results = await lab.admin.delete_groups(["good", "bad"], raise_errors=False)
    assert results["good"].error is None
    assert isinstance(results["bad"].error, GroupAuthorizationFailedError)
    with pytest.raises(GroupAuthorizationFailedError):
        await lab.admin.delete_groups(["good", "bad"])
    await lab.admin.close()


@virtual
async def test_groups_of_all_brokers_are_listed_once() -> None:
    lab = Lab(3)
    lab.on_all(
        ApiKey.LIST_GROUPS,
        lambda broker, _: ListGroupsResponse(
            groups=[ListedGroup(group_id=f"g{broker.id}"), ListedGroup(group_id="moving")]
        ),
    )
    assert [each.group_id for each in await lab.admin.list_groups()] == ["g1", "g2", "g3", "moving"]
    assert [each.group_id for each in await lab.admin.list_groups([2])] == ["g2", "moving"]
    await lab.admin.close()


# ---- older broker versions


@virtual
async def test_describe_cluster_falls_back_to_metadata() -> None:
    lab = Lab(2)
    for broker in lab.brokers:
        broker.versions[ApiKey.DESCRIBE_CLUSTER] = ()  # type: ignore[assignment]
    cluster = await lab.admin.describe_cluster()
    assert [each.id for each in cluster.brokers] == [1, 2]
    assert cluster.controller is not None
    assert cluster.controller.id == 1
    with pytest.raises(UnsupportedVersionError):
        await lab.admin.describe_cluster(include_fenced_brokers=True)
    await lab.admin.close()


@pytest.mark.parametrize("newest", [2, 5, 7, 8, 9, 10])
def test_group_offsets_in_all_versions(newest: int) -> None:
    async def main() -> None:
        lab = Lab()
        lab.brokers[0].versions[ApiKey.OFFSET_FETCH] = (0, newest)

        def answer(_: FakeBroker, request: Any) -> OffsetFetchResponse:
            assert request.group_id == "g" or request.groups[0].group_id == "g"
            return OffsetFetchResponse(
                topics=[
                    OffsetFetchResponseTopic(
                        name="a", partitions=[OffsetFetchResponsePartition(partition_index=0, committed_offset=5)]
                    )
                ],
                groups=[
                    OffsetFetchResponseGroup(
                        group_id="g",
                        topics=[
                            OffsetFetchResponseTopics(
                                name="a",
                                partitions=[OffsetFetchResponsePartitions(partition_index=0, committed_offset=5)],
                            )
                        ],
                    )
                ],
            )

        lab.on_all(ApiKey.OFFSET_FETCH, answer)
        offsets = (await lab.admin.list_group_offsets("g"))["g"]
        assert offsets[TopicPartition("a", 0)].offset == 5
        assert lab.brokers[0].asked(ApiKey.OFFSET_FETCH)[0].version == min(newest, 9)
        await lab.admin.close()

    run(main())


@pytest.mark.parametrize("newest", [1, 5, 6])
def test_delete_topics_in_all_versions(newest: int) -> None:
    async def main() -> None:
        lab = Lab()
        lab.brokers[0].versions[ApiKey.DELETE_TOPICS] = (0, newest)

        def answer(_: FakeBroker, request: Any) -> DeleteTopicsResponse:
            names = request.topic_names or [each.name for each in request.topics]
            return DeleteTopicsResponse(responses=[DeletableTopicResult(name=name) for name in names])

        lab.on_all(ApiKey.DELETE_TOPICS, answer)
        assert list(await lab.admin.delete_topics(["a", "b"])) == ["a", "b"]
        await lab.admin.close()

    run(main())


@virtual
async def test_unsupported_calls_raise_at_once() -> None:
    lab = Lab()
    lab.brokers[0].versions |= {ApiKey.LEAVE_GROUP: (0, 2), ApiKey.LIST_GROUPS: (0, 3), ApiKey.LIST_OFFSETS: (1, 6)}
    lab.cluster.set_topic("a")
    with pytest.raises(
        UnsupportedVersionError, match="LeaveGroup versions 0 to 2, but this client requires one of 3 to 5"
    ):
        await lab.admin.remove_group_members("g", ["m"])
    with pytest.raises(UnsupportedVersionError, match="ListGroups"):
        await lab.admin.list_groups(states_filter=["Stable"])
    with pytest.raises(UnsupportedVersionError, match="ListOffsets"):
        await lab.admin.list_partition_offsets({TopicPartition("a", 0): OffsetSpec.MAX_TIMESTAMP})
    await lab.admin.close()


# ---- configs


@virtual
async def test_broker_configs_are_requested_from_the_broker_itself() -> None:
    lab = Lab(3)
    lab.on_all(
        ApiKey.DESCRIBE_CONFIGS,
        lambda broker, request: DescribeConfigsResponse(
            results=[
                DescribeConfigsResult(
                    resource_type=each.resource_type,
                    resource_name=each.resource_name,
                    configs=[DescribeConfigsResourceResult(name="who", value=str(broker.id), config_source=77)],
                )
                for each in request.resources
            ]
        ),
    )
    await lab.admin.core.metadata.update_brokers()
    resources = [ConfigResource("broker", "2"), ConfigResource("broker", "3"), ConfigResource("topic", "t")]
    results = await lab.admin.describe_configs(resources)
    assert [results[each]["who"] for each in resources[:2]] == ["2", "3"]
    await lab.admin.close()


# ---- arguments


@virtual
async def test_invalid_arguments_raise() -> None:
    lab = Lab()
    admin: Any = lab.admin
    for call, words in [
        (lambda: admin.delete_topics("events"), "topics must be a list, not 'events' alone"),
        (lambda: admin.describe_groups("g"), "group_ids must be a list, not the str 'g'"),
        (lambda: admin.create_topics({"a": {"partitions": 1}}), "unknown option 'partitions'"),
        (lambda: admin.describe_configs([], config_filter="some"), "config_filter='some' is not one of all, modified"),
        (
            lambda: admin.describe_configs([ConfigResource("broker", "x")]),
            "Broker id must be an integer, but it is: 'x'",
        ),
        (lambda: admin.alter_configs([ConfigResource("topic", "x")]), "configs must be a mapping of keys to values"),
        (lambda: admin.remove_group_members("g", [MemberToRemove()]), "needs a member_id or a group_instance_id"),
    ]:
        with pytest.raises(IllegalArgumentError, match=words):
            await call()
    assert not lab.brokers[0].requests
    await lab.admin.close()


@virtual
async def test_broker_is_unregistered() -> None:
    lab = Lab(2)
    codes = [NotControllerError.code, 0, BrokerIdNotRegisteredError.code]

    def unregister(_: FakeBroker, request: Any) -> UnregisterBrokerResponse:
        assert request.broker_id == 7
        return UnregisterBrokerResponse(error_code=codes.pop(0), error_message=None)

    lab.on_all(ApiKey.UNREGISTER_BROKER, unregister)
    await lab.admin.unregister_broker(7)
    with pytest.raises(BrokerIdNotRegisteredError):
        await lab.admin.unregister_broker(7)
    await lab.admin.close()


@virtual
async def test_brokers_with_zookeeper_are_not_unregistered() -> None:
    lab = Lab()
    lab.brokers[0].versions[ApiKey.UNREGISTER_BROKER] = ()  # type: ignore[assignment]
    with pytest.raises(UnsupportedVersionError):
        await lab.admin.unregister_broker(7)
    await lab.admin.close()


@virtual
async def test_empty_arguments_send_no_request() -> None:
    lab = Lab()
    assert await lab.admin.create_topics([]) == {}
    assert await lab.admin.delete_groups([]) == {}
    assert await lab.admin.list_partition_offsets({}) == {}
    assert not lab.brokers[0].requests
    await lab.admin.close()


@virtual
async def test_calls_after_close_raise() -> None:
    lab = Lab()
    await lab.admin.close()
    await lab.admin.close()
    with pytest.raises(IllegalStateError, match="This admin client is closed"):
        await lab.admin.create_topics([NewTopic("a")])
