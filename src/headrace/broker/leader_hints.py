"""Who leads instead: what replies to Produce and Fetch add to an error about the leader (KIP-951)."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from headrace.broker.dispatch import RequestContext
from headrace.common.errors import FencedLeaderEpochError, KafkaError, NotLeaderForPartitionError
from headrace.protocol import Message

if TYPE_CHECKING:
    from headrace.broker.server import Broker

Leader = TypeVar("Leader", bound=Message)
Endpoint = TypeVar("Endpoint", bound=Message)


class LeaderHints(Generic[Leader, Endpoint]):
    """Collects the leaders, and the addresses of their brokers, for one reply. The classes are those of its API."""

    def __init__(
        self,
        broker: "Broker",
        context: RequestContext,
        leader: Callable[..., Leader],
        endpoint: Callable[..., Endpoint],
    ):
        self._broker = broker
        self._listener = context.connection.listener_name
        self._leader = leader
        self._endpoint = endpoint
        self._endpoints: dict[int, Endpoint] = {}

    @property
    def endpoints(self) -> list[Endpoint]:
        return list(self._endpoints.values())

    def leader_after(self, error: KafkaError, topic: str | None, index: int) -> Leader | None:
        """The current leader, if the error says that the client does not know it."""
        if topic is None or not isinstance(error, NotLeaderForPartitionError | FencedLeaderEpochError):
            return None
        image = self._broker.image
        state = image.partition(topic, index)
        if state is None or state.leader < 0:
            return None
        if state.leader not in self._endpoints:
            broker = image.broker(state.leader)
            endpoint = broker.endpoint(self._listener) if broker is not None else None
            if broker is not None and endpoint is not None:
                self._endpoints[broker.id] = self._endpoint(
                    node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack
                )
        return self._leader(leader_id=state.leader, leader_epoch=state.leader_epoch)
