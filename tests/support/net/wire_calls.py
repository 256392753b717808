"""Common calls of a WireClient: produce a batch, fetch a partition, look up a topic id."""

from __future__ import annotations

import time
from typing import Any

from tests.support.broker.process import eventually
from tests.support.net.wire_client import WireClient

from headrace.common.ids import Uuid
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.records import BatchBuilder

NAMED = 12
"""The last version of Produce, Fetch and Metadata with topic names."""


def batch(*values: bytes | None, key: bytes | None = None, timestamp: int | None = None, **options: Any) -> bytes:
    """One batch of records, as a producer would send it."""
    builder = BatchBuilder(**options)
    at = int(time.time() * 1000) if timestamp is None else timestamp
    for value in values or (b"value",):
        builder.append(key, value, at)
    return bytes(builder.build())


def produce_request(data: bytes | None, topic: str = "t", partition: int = 0, acks: int = 1) -> ProduceRequest:
    one = PartitionProduceData(index=partition, records=data)
    return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[TopicProduceData(name=topic, partition_data=[one])])


def produce(client: WireClient, data: bytes | None, version: int = NAMED, **options: Any) -> Any:
    """Returns the response of the one partition."""
    reply = client.call(produce_request(data, **options), version)
    ((partition,),) = (topic.partition_responses for topic in reply.responses)
    return partition


def fetch_request(
    offset: int, topic: str = "t", partition: int = 0, *, max_bytes: int = 1 << 20, epoch: int = -1, **options: Any
) -> FetchRequest:
    asked = FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes, current_leader_epoch=epoch
    )
    defaults = {"max_wait_ms": 0, "min_bytes": 1}
    return FetchRequest(topics=[FetchTopic(topic=topic, partitions=[asked])], **{**defaults, **options})


def fetch(client: WireClient, offset: int, topic: str = "t", partition: int = 0, **options: Any) -> Any:
    """Returns the response of the one partition."""
    reply = client.call(fetch_request(offset, topic, partition, **options), NAMED)
    ((found,),) = (found.partitions for found in reply.responses)
    return found


def end_offset(client: WireClient, topic: str = "t", partition: int = 0) -> int:
    return int(fetch(client, 0, topic, partition).high_watermark)


def auto_create(client: WireClient, name: str, seconds: float = 20.0) -> Any:
    """Requests a topic's metadata until the broker has created it. Returns the first response and the last topic."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
    first = reply = client.call(request, NAMED)
    deadline = time.monotonic() + seconds
    while reply.topics[0].error_code != 0:
        assert time.monotonic() < deadline, f"topic {name}: error {reply.topics[0].error_code}"
        reply = client.call(request, NAMED)
    return first, reply.topics[0]


def first_address(bootstrap: str) -> tuple[str, int]:
    host, _, port = bootstrap.partition(",")[0].rpartition(":")
    return host, int(port)


def leader_address(bootstrap: str, topic: str, partition: int = 0) -> tuple[str, int]:
    """Returns the address of a partition's leader; waits until there is one."""
    found: dict[int, tuple[str, int]] = {}
    with WireClient(first_address(bootstrap)) as client:

        def has_leader() -> bool:
            reply = client.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), NAMED)
            nodes = {node.node_id: (node.host, node.port) for node in reply.brokers}
            (described,) = reply.topics
            found.update({each.partition_index: nodes.get(each.leader_id, ("", 0)) for each in described.partitions})
            return bool(found.get(partition, ("", 0))[1])

        eventually(has_leader, f"{topic}-{partition} has a leader")
    return found[partition]


def coordinator_address(bootstrap: str, key_type: int = 0, key: str = "any") -> tuple[str, int]:
    """Returns the address of the coordinator of a group or (1) a transactional id; waits until there is one."""
    with WireClient(first_address(bootstrap)) as client:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        found = []

        def is_found() -> bool:
            found[:] = client.call(request).coordinators
            return found[0].error_code == 0

        eventually(is_found, "there is a coordinator")
    return found[0].host, found[0].port


def topic_id(client: WireClient, name: str = "t") -> Uuid:
    (topic,) = client.call(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), NAMED).topics
    found = topic.topic_id
    assert isinstance(found, Uuid)
    return found
