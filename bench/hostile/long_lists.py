"""Requests with very long lists."""

from bench.broker_sides import Side
from bench.broker_wire import Wire
from bench.hostile.attack import Attack
from bench.hostile.well_behaved import TOPIC
from headrace.protocol import Message, encode_request
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

RESPONSE_SECONDS = 180.0
_FETCH_VERSION = 4  # the oldest one of Apache Kafka 4: the most items for the fewest bytes


def send(side: Side, request: Message, version: int) -> str:
    """Sends a request on a new connection, and returns the outcome."""
    with Wire(side.port, RESPONSE_SECONDS) as wire:
        try:
            response = wire.send(encode_request(request, version, 1, "attacker"))
        except TimeoutError:
            return f"no response in {RESPONSE_SECONDS:g} s"
        except OSError:
            return "refused: connection closed"
    return f"response of {response.size / 1e6:.1f} MB"


class FetchPartitions(Attack):
    """One Fetch that names partitions that do not exist."""

    max_memory_mb = 300.0

    def __init__(self, partitions: int):
        self.name = f"one Fetch that names {partitions:,} partitions"
        self._partitions = partitions

    def run(self, side: Side) -> str:
        count = self._partitions // 100 if self.quick else self._partitions
        partitions = [FetchPartition(partition=number, partition_max_bytes=1) for number in range(1, count + 1)]
        topic = FetchTopic(topic=TOPIC, partitions=partitions)
        return send(side, FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1, topics=[topic]), _FETCH_VERSION)
