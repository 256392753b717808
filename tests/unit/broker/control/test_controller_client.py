"""Requests to the controller: in the same process, and in a fake broker in virtual time."""

import asyncio
import random
from collections.abc import Mapping
from typing import Any, cast

import pytest
from tests.support.client.fake_brokers import FakeNetwork
from tests.support.net.virtual_loop import run

from headrace.broker.config.inter_broker_protocol import InterBrokerProtocol
from headrace.broker.control.controller_client import ControllerClient
from headrace.broker.inter_broker_client import InterBrokerClient
from headrace.cluster.commands import BrokerEndpoint, BrokerInfo, PartitionState, UpdateMetadata
from headrace.cluster.controller import Controller
from headrace.cluster.controller_requests import IsrChange
from headrace.cluster.metadata_image import MetadataImage
from headrace.cluster.znodes import Leadership
from headrace.common.errors import (
    FencedLeaderEpochError,
    NotControllerError,
    RequestTimedOutError,
    StaleBrokerEpochError,
    UnknownTopicOrPartitionError,
)
from headrace.common.ids import Uuid
from headrace.common.types import TopicPartition
from headrace.net.errors import KafkaConnectionError
from headrace.protocol import ApiKey
from headrace.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionDataResponse,
    TopicDataResponse,
)
from headrace.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ID = Uuid(int=7)
CHANGES = {T0: IsrChange(3, 8, (1, 2), (77, 99)), T1: IsrChange(4, 9, (1,))}


class LocalController:
    def __init__(self) -> None:
        self.is_active = False
        self.active_id: int | None = None
        self.calls: list[Any] = []

    async def alter_isr(self, broker_id: int, broker_epoch: int, changes: Mapping[Any, Any]) -> dict[Any, Any]:
        self.calls.append((broker_id, broker_epoch, changes))
        return {T0: Leadership(1, 3, (1, 2), 5, 9)}

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> set[TopicPartition]:
        self.calls.append((broker_id, broker_epoch))
        return {T1}


class Lab:
    """Broker 1 with epoch 77, and broker 2."""

    def __init__(self, version: str = "3.9") -> None:
        self.network = FakeNetwork()
        self.remote = self.network.add(2)
        self.remote.announces_all = True
        self.controller = LocalController()
        self.image = MetadataImage()
        client = InterBrokerClient(1, "INSIDE", dialer=self.network, random=random.Random(1))
        brokers = [BrokerInfo(1, ()), BrokerInfo(2, (BrokerEndpoint("INSIDE", *self.remote.address),))]
        client.set_brokers(brokers)
        states = [PartitionState(tp, ID, 1, 0, (1,), 0, (1, 2)) for tp in (T0, T1)]
        self.image.apply(UpdateMetadata(2, 6, -1, brokers, states))
        self.client = ControllerClient(
            1,
            cast(Controller, self.controller),
            self.image,
            client,
            InterBrokerProtocol.parse(version),
            lambda: 77,
            1000,
        )


def test_calls_the_controller_of_this_process() -> None:
    async def main() -> None:
        lab = Lab()
        lab.controller.is_active = True
        assert lab.client.controller_id == 1
        assert await lab.client.alter_partition(CHANGES) == {T0: Leadership(1, 3, (1, 2), 5, 9)}
        assert await lab.client.controlled_shutdown() == {T1}
        assert lab.controller.calls == [(1, 77, CHANGES), (1, 77)]

    run(main())


@pytest.mark.parametrize(("version", "expected"), [("3.9", 3), ("2.7", 1)])
def test_alters_partitions_through_a_remote_controller(version: str, expected: int) -> None:
    async def main() -> None:
        lab = Lab(version)

        def answer(request: AlterPartitionRequest) -> AlterPartitionResponse:
            (topic,) = request.topics
            good = PartitionDataResponse(partition_index=0, leader_id=1, leader_epoch=3, isr=[1, 2], partition_epoch=9)
            bad = PartitionDataResponse(partition_index=1, error_code=FencedLeaderEpochError.code)
            return AlterPartitionResponse(
                topics=[TopicDataResponse(topic_name=topic.topic_name, topic_id=topic.topic_id, partitions=[good, bad])]
            )

        lab.remote.on(ApiKey.ALTER_PARTITION, answer)
        results = await lab.client.alter_partition(CHANGES)
        assert results[T0] == Leadership(1, 3, (1, 2), 6, 9)
        assert isinstance(results[T1], FencedLeaderEpochError)
        (received,) = lab.remote.asked(ApiKey.ALTER_PARTITION)
        assert received.version == expected
        assert (received.message.broker_id, received.message.broker_epoch) == (1, 77)
        (topic,) = received.message.topics
        first = topic.partitions[0]
        assert (first.leader_epoch, first.partition_epoch) == (3, 8)
        if expected == 3:
            assert topic.topic_id == ID
            assert [(replica.broker_id, replica.broker_epoch) for replica in first.new_isr_with_epochs] == [
                (1, 77),
                (2, 99),
            ]
            (second,) = topic.partitions[1].new_isr_with_epochs
            assert (second.broker_id, second.broker_epoch) == (1, -1)
        else:
            assert topic.topic_name == "t"
            assert first.new_isr == [1, 2]

    run(main())


def test_a_partition_without_an_answer_is_an_error() -> None:
    async def main() -> None:
        lab = Lab()
        lab.remote.on(ApiKey.ALTER_PARTITION, lambda _: AlterPartitionResponse())
        results = await lab.client.alter_partition(CHANGES)
        assert all(isinstance(result, UnknownTopicOrPartitionError) for result in results.values())

    run(main())


def test_controlled_shutdown_through_a_remote_controller() -> None:
    async def main() -> None:
        lab = Lab()

        def answer(request: ControlledShutdownRequest) -> ControlledShutdownResponse:
            assert (request.broker_id, request.broker_epoch) == (1, 77)
            return ControlledShutdownResponse(
                remaining_partitions=[RemainingPartition(topic_name="t", partition_index=1)]
            )

        lab.remote.on(ApiKey.CONTROLLED_SHUTDOWN, answer)
        assert await lab.client.controlled_shutdown() == {T1}
        lab.remote.on(
            ApiKey.CONTROLLED_SHUTDOWN, lambda _: ControlledShutdownResponse(error_code=StaleBrokerEpochError.code)
        )
        with pytest.raises(StaleBrokerEpochError):
            await lab.client.controlled_shutdown()
        lab.remote.accepts = False
        lab.remote.hang_up()
        with pytest.raises(KafkaConnectionError):
            await lab.client.controlled_shutdown()

    run(main())


def test_finds_the_controller() -> None:
    lab = Lab()
    assert lab.client.controller_id == 2  # from the image
    lab.controller.active_id = 3  # not alive
    assert lab.client.controller_id == 2
    lab.image.apply(UpdateMetadata(1, 7, -1, [], []))
    assert lab.client.controller_id is None
    lab.controller.active_id = 2
    assert lab.client.controller_id == 2


def test_without_a_controller() -> None:
    async def main() -> None:
        lab = Lab()
        lab.image.apply(UpdateMetadata(1, 7, -1, [], []))
        with pytest.raises(NotControllerError, match="Broker 1 knows no active controller"):
            await lab.client.alter_partition(CHANGES)

    run(main())


def test_does_not_wait_forever_for_a_controller_without_its_store() -> None:
    async def never(*_: object) -> set[TopicPartition]:
        await asyncio.Event().wait()
        return set()

    async def main() -> None:
        lab = Lab()
        lab.controller.is_active = True
        lab.controller.controlled_shutdown = never  # type: ignore[method-assign]
        started = asyncio.get_running_loop().time()
        with pytest.raises(RequestTimedOutError, match="did not respond within 1000 ms"):
            await lab.client.controlled_shutdown()
        assert asyncio.get_running_loop().time() - started == 1

    run(main())
