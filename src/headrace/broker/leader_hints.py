"""The current leader, which Produce and Fetch responses add to errors about leadership (KIP-951)."""

from collections.abc import Callable
from typing import Generic, TypeVar

from headrace.cluster.metadata_image import MetadataImage
from headrace.common.errors import FencedLeaderEpochError, KafkaError, NotLeaderForPartitionError
from headrace.protocol import Message

Leader = TypeVar("Leader", bound=Message)
Endpoint = TypeVar("Endpoint", bound=Message)


class LeaderHints(Generic[Leader, Endpoint]):
    """Collects leaders and their brokers' endpoints for one response. `leader` and `endpoint` are its API's classes."""

    def __init__(
        self,
        image: MetadataImage,
        listener_name: str,
        leader: Callable[..., Leader],
        endpoint: Callable[..., Endpoint],
    ):
        self._image = image
        self._listener_name = listener_name
        self._leader = leader
        self._endpoint = endpoint
        self._endpoints: dict[int, Endpoint] = {}

    @property
    def endpoints(self) -> list[Endpoint]:
        return list(self._endpoints.values())

    def leader_after(self, error: KafkaError, topic: str | None, index: int) -> Leader | None:
        """Returns the current leader if the error means that the client does not know it."""
        if topic is None or not isinstance(error, NotLeaderForPartitionError | FencedLeaderEpochError):
            return None
        state = self._image.partition(topic, index)
        if state is None or state.leader < 0:
            return None
        if state.leader not in self._endpoints:
            broker = self._image.broker(state.leader)
            endpoint = broker.endpoint(self._listener_name) if broker is not None else None
            if broker is not None and endpoint is not None:
                self._endpoints[broker.id] = self._endpoint(
                    node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack
                )
        return self._leader(leader_id=state.leader, leader_epoch=state.leader_epoch)
