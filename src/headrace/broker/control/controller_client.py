"""Requests of this broker to the active controller: in another broker over the network, in this process directly.

Each call is one attempt. It raises a KafkaError if it did not succeed, for example NotControllerError during a failover
of the controller, and the caller decides when to try again. A request whose response was lost may have been executed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from itertools import zip_longest
from typing import TypeVar

from headrace.broker.config.inter_broker_protocol import InterBrokerProtocol
from headrace.broker.inter_broker_client import InterBrokerClient
from headrace.cluster.controller import Controller
from headrace.cluster.controller_requests import UNCHECKED_EPOCH, IsrChange
from headrace.cluster.metadata_image import MetadataImage
from headrace.cluster.znodes import Leadership
from headrace.common.errors import (
    KafkaError,
    NotControllerError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
    for_code,
)
from headrace.common.ids import ZERO_UUID, Uuid
from headrace.common.types import TopicPartition
from headrace.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionDataRequest,
    PartitionDataResponse,
    TopicDataRequest,
)
from headrace.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse

_logger = logging.getLogger(__name__)

PURPOSE = "to-controller"
"""Requests to the controller do not wait behind other requests to the same broker."""
_FIRST_WITH_TOPIC_IDS = 2
_T = TypeVar("_T")


class ControllerClient:
    """Finds the active controller and sends it requests."""

    def __init__(
        self,
        node_id: int,
        controller: Controller,
        image: MetadataImage,
        client: InterBrokerClient,
        protocol: InterBrokerProtocol,
        broker_epoch: Callable[[], int],
        timeout_ms: float,
    ):
        self._node_id = node_id
        self._controller = controller
        self._image = image
        self._client = client
        self._protocol = protocol
        self._broker_epoch = broker_epoch
        self._timeout_ms = timeout_ms

    @property
    def controller_id(self) -> int | None:
        """The id of the active controller, or None if this broker knows none."""
        if self._controller.is_active:
            return self._node_id
        # The store's watch is usually faster than the first command of a new controller.
        candidates = (self._controller.active_id, self._image.controller_id)
        return next((found for found in candidates if found is not None and self._is_remote(found)), None)

    def _is_remote(self, broker_id: int) -> bool:
        return broker_id != self._node_id and broker_id in self._client.brokers

    def _remote_controller(self) -> int:
        found = self.controller_id
        if found is None:
            raise NotControllerError(f"Broker {self._node_id} knows no active controller")
        return found

    async def alter_partition(
        self, changes: Mapping[TopicPartition, IsrChange]
    ) -> dict[TopicPartition, Leadership | KafkaError]:
        """Proposes new in-sync replicas of partitions that this broker leads (KIP-497). Returns the state, or the
        error, of each partition."""
        if self._controller.is_active:
            return await self._in_time(self._controller.alter_isr(self._node_id, self._broker_epoch(), changes))
        controller_id = self._remote_controller()
        topic_ids = {
            tp.topic: change.topic_id or self._image.topic_id(tp.topic) or ZERO_UUID for tp, change in changes.items()
        }
        response: AlterPartitionResponse = await self._client.send(
            controller_id,
            self._alter_partition_request(changes, topic_ids),
            purpose=PURPOSE,
            timeout_ms=self._timeout_ms,
            max_version=self._alter_partition_version(topic_ids),
        )
        self._check(response.error_code, controller_id)
        return self._isr_results(changes, response, topic_ids)

    def _alter_partition_version(self, topic_ids: Mapping[str, Uuid]) -> int:
        if ZERO_UUID in topic_ids.values():
            return _FIRST_WITH_TOPIC_IDS - 1
        return self._protocol.alter_partition_max_version

    def _alter_partition_request(
        self, changes: Mapping[TopicPartition, IsrChange], topic_ids: Mapping[str, Uuid]
    ) -> AlterPartitionRequest:
        topics = {name: TopicDataRequest(topic_name=name, topic_id=topic_id) for name, topic_id in topic_ids.items()}
        for tp, change in changes.items():
            topics[tp.topic].partitions.append(
                PartitionDataRequest(
                    partition_index=tp.partition,
                    leader_epoch=change.leader_epoch,
                    new_isr=list(change.isr),
                    new_isr_with_epochs=[
                        BrokerState(broker_id=broker_id, broker_epoch=epoch)
                        for broker_id, epoch in zip_longest(change.isr, change.broker_epochs, fillvalue=UNCHECKED_EPOCH)
                    ],
                    leader_recovery_state=change.leader_recovery_state,
                    partition_epoch=change.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=self._node_id, broker_epoch=self._broker_epoch(), topics=list(topics.values())
        )

    def _isr_results(
        self,
        changes: Mapping[TopicPartition, IsrChange],
        response: AlterPartitionResponse,
        topic_ids: Mapping[str, Uuid],
    ) -> dict[TopicPartition, Leadership | KafkaError]:
        names = {topic_id: name for name, topic_id in topic_ids.items()}
        answered = {
            TopicPartition(topic.topic_name or names.get(topic.topic_id, ""), partition.partition_index): partition
            for topic in response.topics
            for partition in topic.partitions
        }
        return {tp: self._isr_result(tp, answered.get(tp)) for tp in changes}

    def _isr_result(self, tp: TopicPartition, partition: PartitionDataResponse | None) -> Leadership | KafkaError:
        if partition is None:
            return UnknownTopicOrPartitionError(f"The controller's response does not have partition {tp}")
        if partition.error_code:
            error = for_code(partition.error_code)
            return error(f"{error.name}: the controller rejected the ISR change of {tp}")
        return Leadership(
            partition.leader_id,
            partition.leader_epoch,
            tuple(partition.isr),
            self._image.controller_epoch,
            partition.partition_epoch,
            leader_recovery_state=partition.leader_recovery_state,
        )

    async def controlled_shutdown(self) -> set[TopicPartition]:
        """Asks the controller to move leaderships away from this broker. Returns the replicated partitions that it
        still leads."""
        if self._controller.is_active:
            return await self._in_time(self._controller.controlled_shutdown(self._node_id, self._broker_epoch()))
        controller_id = self._remote_controller()
        version = self._protocol.controlled_shutdown_version
        response: ControlledShutdownResponse = await self._client.send(
            controller_id,
            ControlledShutdownRequest(broker_id=self._node_id, broker_epoch=self._broker_epoch()),
            purpose=PURPOSE,
            timeout_ms=self._timeout_ms,
            max_version=version,
        )
        self._check(response.error_code, controller_id)
        return {
            TopicPartition(partition.topic_name, partition.partition_index)
            for partition in response.remaining_partitions
        }

    async def _in_time(self, call: Awaitable[_T]) -> _T:
        """Waits for the controller of this process, which may wait for a store that cannot be reached."""
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                return await call
        except TimeoutError:
            raise RequestTimedOutError(
                f"The controller, which is this broker, did not respond within {self._timeout_ms:.0f} ms"
            ) from None

    def _check(self, error_code: int, controller_id: int) -> None:
        if error_code:
            error = for_code(error_code)
            raise error(f"{error.name}: controller {controller_id} rejected the request of broker {self._node_id}")
