from types import SimpleNamespace
from typing import Any

from tests.support.cluster.fake_cluster import FakeCluster, async_test

from headrace.broker.handlers import alter_partition
from headrace.cluster.metadata_image import MetadataImage
from headrace.common.errors import NotControllerError, UnknownTopicIdError
from headrace.common.ids import Uuid
from headrace.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionDataRequest,
    TopicDataRequest,
)

UNKNOWN = Uuid(int=99)


async def alter(cluster: FakeCluster, receiver: int, *topic_ids: Uuid) -> AlterPartitionResponse:
    """Broker 1 proposes the ISR [1] for partition 0 of topics. The receiver's metadata image is empty."""
    controller: Any = cluster.brokers[receiver].controller
    partition = PartitionDataRequest(
        partition_index=0, leader_epoch=0, new_isr_with_epochs=[BrokerState(broker_id=1)], partition_epoch=0
    )
    request = AlterPartitionRequest(
        broker_id=1,
        broker_epoch=cluster.brokers[1].info.epoch,
        topics=[TopicDataRequest(topic_id=topic_id, partitions=[partition]) for topic_id in topic_ids],
    )
    context: Any = SimpleNamespace(api_version=3, authorizer=None)
    return await alter_partition.handle(request, context, controller=controller, image=MetadataImage())


@async_test
async def test_topics_that_only_the_controller_knows() -> None:
    """A broker that becomes the controller while it starts has no metadata of its own yet. A leader takes the error
    UNKNOWN_TOPIC_ID as final, so it must be true."""
    cluster = await FakeCluster.make()
    orders = await cluster.create("orders", {0: [1, 2]})
    active = cluster.controller.broker_id
    response = await alter(cluster, active, orders.topic_id, UNKNOWN)
    known, unknown = response.topics
    assert [(answer.error_code, answer.isr) for answer in known.partitions] == [(0, [1])]
    assert [answer.error_code for answer in unknown.partitions] == [UnknownTopicIdError.code]
    assert (await cluster.state("orders")).isr == (1,)
    other = next(broker_id for broker_id in cluster.brokers if broker_id != active)
    assert (await alter(cluster, other, orders.topic_id)).error_code == NotControllerError.code
    await cluster.close()
