"""Produce requests with a few KB that are hundreds of megabytes uncompressed."""

import time

import cramjam
from tests.support.records.reference_batch import batch_bytes

from bench.broker_sides import Side
from bench.broker_wire import Wire
from bench.hostile.attack import Attack
from bench.hostile.well_behaved import TOPIC
from headrace.protocol import decode, encode_request
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from headrace.records import Compression
from headrace.records._wire import encode_varint

MIB = 1024 * 1024
_ZEROS = bytes(10 * MIB)
_VERSION = 9
_ROUNDS = 5


class Inflating(Attack):
    """Produces a batch of records that have zeros only."""

    max_memory_mb = 300.0

    def __init__(self, codec: Compression, megabytes: int):
        self._codec = codec
        self._megabytes = megabytes
        self.name = f"{codec.name.lower()} that inflates to {megabytes:,} MB, {_ROUNDS} times"
        self._frame = b""

    def prepare(self, side: Side) -> None:  # noqa: ARG002
        batch = _bomb(self._codec, (self._megabytes // 20 if self.quick else self._megabytes) * MIB)
        data = PartitionProduceData(index=0, records=batch)
        topic = TopicProduceData(name=TOPIC, partition_data=[data])
        request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[topic])
        self._frame = bytes(encode_request(request, _VERSION, 1, "attacker"))

    def run(self, side: Side) -> str:
        began = time.perf_counter()
        codes: set[int] = set()
        with Wire(side.port, 120.0) as wire:
            for _ in range(_ROUNDS):
                response = decode(ProduceResponse, _VERSION, wire.send(self._frame).body, 1)
                codes.add(response.responses[0].partition_responses[0].error_code)
        each_ms = (time.perf_counter() - began) / _ROUNDS * 1000
        return f"{len(self._frame) / 1024:.0f} KB, error codes {sorted(codes)}, {each_ms:.0f} ms each"


def _bomb(codec: Compression, size: int) -> bytes:
    """Returns a valid batch of records with a value of 10 MB of zeros each, compressed as a stream."""
    now_ms = int(time.time() * 1000)
    compressor = getattr(cramjam, codec.name.lower()).Compressor()
    count = max(1, size // len(_ZEROS))
    for offset in range(count):
        before = b"\0\0" + encode_varint(offset) + encode_varint(-1) + encode_varint(len(_ZEROS))
        compressor.compress(encode_varint(len(before) + len(_ZEROS) + 1) + before)
        compressor.compress(_ZEROS)
        compressor.compress(b"\0")
    return batch_bytes(
        bytes(compressor.finish()),
        count=count,
        attributes=int(codec),
        base_timestamp=now_ms,
        max_timestamp=now_ms,
    )
