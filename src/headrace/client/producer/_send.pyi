from collections import deque
from collections.abc import Callable
from typing import Any

from headrace.client.producer._batch import FutureRecordMetadata, ProducerBatch
from headrace.client.producer.interceptors import Interceptors
from headrace.client.producer.partitioners import Partitioner
from headrace.client.producer.types import Headers, OnDelivery
from headrace.common.clock import Clock
from headrace.common.types import TopicPartition

class PartitionQueue:
    is_muted: bool
    leader: int
    closed_bytes: int
    open_batch: ProducerBatch | None
    def __init__(self, tp: TopicPartition) -> None: ...
    @property
    def tp(self) -> TopicPartition: ...
    @property
    def partition(self) -> int: ...
    @property
    def batches(self) -> deque[ProducerBatch]: ...

class TopicQueues:
    queues: list[PartitionQueue]
    available: list[int]
    sticky: PartitionQueue
    sticky_from: int
    def __init__(self, topic: str) -> None: ...
    @property
    def topic(self) -> str: ...
    def set_leaders(self, leaders: list[int]) -> None: ...

class SerializedRecord:
    partition: int
    @property
    def topic(self) -> str: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def on_delivery(self) -> OnDelivery | None: ...
    @property
    def batch_size_bytes(self) -> int: ...
    def append_to(self, batch: ProducerBatch) -> FutureRecordMetadata | None: ...
    def fail(self, error: BaseException) -> FutureRecordMetadata: ...

class SerializeMethod:
    def __init__(self, function: Callable[..., Any], wants_headers: bool) -> None: ...

class RecordAppender:
    _topics: dict[str, TopicQueues]
    _check_state: Callable[[], None] | None
    _interceptors: Interceptors | None
    _key_serializer: Any
    _value_serializer: Any
    _partitioner: Partitioner | None
    _on_delivery: OnDelivery | None
    _ignore_keys: bool
    _max_record_bytes: int
    _clock: Clock
    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> FutureRecordMetadata: ...
    def _try_append(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int | None,
        on_delivery: OnDelivery | None,
    ) -> FutureRecordMetadata | SerializedRecord: ...
    def _choose_partition(self, record: SerializedRecord) -> bool: ...
    def _append_to_accumulator(self, record: SerializedRecord) -> FutureRecordMetadata: ...
