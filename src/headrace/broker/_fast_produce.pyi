from typing import Any

from headrace.broker.replica_manager import ReplicaManager
from headrace.cluster.metadata_image import MetadataImage
from headrace.common.clock import Clock

class PartitionFields:
    log: Any
    isr: list[int]
    replicas: list[int]
    is_leader: bool
    leader_epoch: int
    _append_failing: bool

class FastProduce:
    def __init__(self, replicas: ReplicaManager, image: MetadataImage, clock: Clock) -> None: ...
    def handle(self, frame: memoryview) -> bytes | list[tuple[int, int]] | None: ...
