"""Headrace's admin client with the interface of the other admin clients in the broker's compatibility tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from tests.support.broker.admin_clients import Assignment, BrokerError, Cluster, Config, Configs, Operation, Partition
from tests.support.broker.under_test import REPLICAS

import headrace
from headrace.admin import ConfigResource, NewPartitions, NewTopic, OffsetSpec
from headrace.common.errors import KafkaError
from headrace.common.types import TopicPartition

T = TypeVar("T")


class HeadraceAdmin:
    name = "headrace"

    def __init__(self, bootstrap: str) -> None:
        self._admin = headrace.Admin(bootstrap_servers=bootstrap)

    def close(self) -> None:
        self._admin.close()

    def _call(self, function: Callable[..., T], *args: Any, **fields: Any) -> T:
        try:
            return function(*args, **fields)
        except KafkaError as error:
            raise BrokerError(error.code, error) from error

    def create(
        self,
        topic: str,
        partitions: int = 1,
        replicas: int = REPLICAS,
        configs: Configs | None = None,
        assignment: Assignment | None = None,
        validate_only: bool = False,
    ) -> None:
        new = NewTopic(topic, partitions, replicas, assignment, configs)
        self._call(self._admin.create_topics, [new], validate_only=validate_only)

    def delete(self, topic: str) -> None:
        self._call(self._admin.delete_topics, [topic])

    def grow(self, topic: str, partitions: int, assignments: list[list[int]] | None = None) -> None:
        self._call(self._admin.create_partitions, {topic: NewPartitions(partitions, assignments)})

    def topics(self) -> set[str]:
        return set(self._admin.list_topics())

    def describe(self, topic: str) -> dict[int, Partition]:
        found = self._call(self._admin.describe_topics, [topic])[topic]
        return {
            each.partition: Partition(each.leader, list(each.replicas), list(each.isr)) for each in found.partitions
        }

    def cluster(self) -> Cluster:
        found = self._admin.describe_cluster()
        return Cluster(
            found.controller_id, {each.id: (each.host, each.port) for each in found.brokers}, found.cluster_id
        )

    def configs(self, kind: str, name: str) -> dict[str, Config]:
        resource = ConfigResource(kind, name)
        found = self._call(self._admin.describe_configs, [resource])[resource]
        return {key: Config(each.value, each.is_default, each.is_read_only) for key, each in found.entries.items()}

    def alter(self, kind: str, name: str, operations: Iterable[Operation]) -> None:
        changes = {key: (operation, value) for operation, key, value in operations}
        self._call(self._admin.alter_configs, [ConfigResource(kind, name, changes)])

    def replace(self, kind: str, name: str, configs: Configs) -> None:
        self._call(self._admin.alter_configs, [ConfigResource(kind, name, configs)], incremental=False)

    def delete_records(self, topic: str, partition: int, offset: int) -> int:
        tp = TopicPartition(topic, partition)
        return self._call(self._admin.delete_records, {tp: offset})[tp].low_watermark

    def offset(self, topic: str, partition: int, wanted: str | int) -> tuple[int, int]:
        spec = OffsetSpec[wanted.upper()] if isinstance(wanted, str) else wanted
        tp = TopicPartition(topic, partition)
        found = self._call(self._admin.list_partition_offsets, {tp: spec})[tp]
        return found.offset, found.timestamp
