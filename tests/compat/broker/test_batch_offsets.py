"""Batches whose offsets do not start with 0, which no current client sends. The expected results are Apache Kafka's."""

from collections.abc import Callable

import pytest
from tests.support.broker.process import Broker, eventually
from tests.support.net.wire_calls import batch, end_offset, leader_address, produce
from tests.support.net.wire_client import WireClient

from headrace.records import Compression, RecordBatch

INVALID_RECORD = 87


@pytest.mark.parametrize("stored", ["producer", "uncompressed", "gzip"])
@pytest.mark.parametrize("codec", list(Compression), ids=lambda codec: codec.name.lower())
def test_base_offset_must_be_0(broker: Broker, new_topic: Callable[..., str], codec: Compression, stored: str) -> None:
    """For compressed and uncompressed batches, with and without recompression for the topic."""
    topic = new_topic(compression_type=stored)
    data = bytearray(batch(b"one", b"two", codec=codec))
    with WireClient(leader_address(broker.bootstrap, topic), timeout=60.0) as wire:
        eventually(lambda: produce(wire, bytes(data), topic=topic).error_code == 0, "the topic has a leader")
        for base_offset in (1, 5, -1, 2**40):
            RecordBatch(data).patch_base_offset(base_offset)
            reply = produce(wire, bytes(data), topic=topic)
            assert (reply.error_code, reply.base_offset) == (INVALID_RECORD, -1), base_offset
        RecordBatch(data).patch_base_offset(0)
        reply = produce(wire, bytes(data), topic=topic, acks=-1)
        assert (reply.error_code, reply.base_offset) == (0, 2)
        assert end_offset(wire, topic) == 4
