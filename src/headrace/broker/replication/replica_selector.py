"""Which replica a consumer should fetch from (KIP-392): one in its own rack, if the leader is in another one.

The leader selects. Only followers in sync that have the consumer's offset are candidates. A lagging one would hold the
consumer back.
"""

from headrace.broker.config.replication import RACK_AWARE_SELECTOR
from headrace.broker.partition import Partition
from headrace.cluster.metadata_image import MetadataImage


class RackAwareReplicaSelector:
    """Selects a replica in the rack of the consumer: the most up-to-date one if there are several."""

    def __init__(self, image: MetadataImage):
        self._image = image

    def select(self, partition: Partition, fetch_offset: int, client_rack: str) -> int | None:
        """Returns the id of the replica to fetch from; None for the leader, which is this broker."""
        if not client_rack or self._rack_of(partition.node_id) == client_rack:
            return None
        best = max(
            (
                (follower.log_end_offset, follower.last_caught_up_ms, -follower.broker_id)
                for follower in partition.followers.values()
                if follower.broker_id in partition.isr
                and 0 <= follower.log_start_offset <= fetch_offset <= follower.log_end_offset
                and self._rack_of(follower.broker_id) == client_rack
            ),
            default=None,
        )
        return None if best is None else -best[-1]

    def _rack_of(self, broker_id: int) -> str | None:
        broker = self._image.broker(broker_id)
        return broker.rack if broker is not None else None


def make_selector(class_name: str | None, image: MetadataImage) -> RackAwareReplicaSelector | None:
    """Returns the selector for `replica.selector.class`; None if consumers always fetch from the leader."""
    return RackAwareReplicaSelector(image) if class_name == RACK_AWARE_SELECTOR else None
