from collections.abc import Container
from typing import Any

from headrace.broker.replica_manager import ReplicaManager
from headrace.cluster.metadata_image import MetadataImage
from headrace.common.clock import Clock

class TopicTraffic:
    messages_in: int
    bytes_in: int
    bytes_out: int
    bytes_rejected: int
    replication_bytes_in: int
    replication_bytes_out: int
    produces: int
    failed_produces: int
    fetches: int
    failed_fetches: int

class PartitionFields:
    log: Any
    traffic: TopicTraffic
    isr: list[int]
    replicas: list[int]
    is_leader: bool
    leader_epoch: int
    _append_failing: bool

class FastProduce:
    def __init__(self, replicas: ReplicaManager, image: MetadataImage, clock: Clock) -> None: ...
    def handle(
        self, frame: memoryview, writable: Container[str] | None = None
    ) -> bytes | list[tuple[int, int]] | None: ...
