"""Reads all committed records of topics as Arrow columns, without Spark and without a consumer group.

Owner of the client: the caller's thread, within one call of `read_topics`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headrace.client.consumer.range_client import EARLIEST, LATEST, RangeClient
from headrace.common.errors import UnknownTopicOrPartitionError
from headrace.common.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Records", "read_topics"]

_CHUNK_BYTES = 8 * 1024 * 1024


class Records(NamedTuple):
    """Consecutive records of a partition."""

    topic: str
    partition: int
    keys: "pa.Array"
    values: "pa.Array"
    offsets: "pa.Array"
    timestamps: "pa.Array"


def read_topics(
    bootstrap_servers: str, topics: Sequence[str], client: Mapping[str, str] | None = None
) -> Iterator[Records]:
    """Yields the records that the topics have now, partition by partition, in the order of offsets. Raises if a topic
    does not exist. `client` are additional client configs."""
    # Records of aborted transactions, left by killed tasks, must not count.
    config = {"isolation.level": "read_committed", **(client or {}), "bootstrap.servers": bootstrap_servers}
    ranges = RangeClient(config)
    try:
        partitions = ranges.partitions(topics)
        if missing := sorted(set(topics) - partitions.keys()):
            raise UnknownTopicOrPartitionError(f"topic {', '.join(missing)} does not exist")
        tps = [TopicPartition(topic, number) for topic in dict.fromkeys(topics) for number in partitions[topic]]
        starts, ends = (ranges.offsets(dict.fromkeys(tps, bound)) for bound in (EARLIEST, LATEST))
        for tp in tps:
            for columns in ranges.read(tp, starts[tp], ends[tp], target_bytes=_CHUNK_BYTES):
                yield Records(tp.topic, tp.partition, columns.keys, columns.values, columns.offsets, columns.timestamps)
    finally:
        ranges.close()
