"""What a broker's log has in the end, read with plain fetches."""

from tests.support.net.wire_calls import fetch
from tests.support.net.wire_client import WireClient

from headrace.common.types import TopicPartition
from headrace.records import Record, decode_rows, split_batches
from headrace.testing import EmbeddedBroker

READ_COMMITTED = 1


def read_records(broker: EmbeddedBroker, topic: str, partition: int = 0, committed: bool = False) -> list[Record]:
    """All records of a partition; with `committed`, without those of transactions that were aborted or are open."""
    found: list[Record] = []
    offset = 0
    with WireClient(broker.address) as client:
        while True:
            reply = fetch(client, offset, topic, partition, isolation_level=READ_COMMITTED if committed else 0)
            assert reply.error_code == 0, reply.error_code
            end = reply.last_stable_offset if committed else reply.high_watermark
            aborted: dict[int, list[int]] = {}
            for each in sorted(reply.aborted_transactions or (), key=lambda each: each.first_offset):
                aborted.setdefault(each.producer_id, []).append(each.first_offset)
            batches = split_batches(bytes(reply.records or b""), allow_partial=True)
            if offset >= end or not batches:
                return found
            for batch in batches:
                offset = batch.next_offset
                mine = aborted.get(batch.producer_id)
                is_aborted = bool(mine) and batch.is_transactional and batch.base_offset >= mine[0]
                if batch.is_control and is_aborted:
                    mine.pop(0)
                elif not batch.is_control and not is_aborted:
                    found += decode_rows(batch.records())


def read_values(broker: EmbeddedBroker, topic: str, partition: int = 0, committed: bool = False) -> list[bytes | None]:
    return [record.value for record in read_records(broker, topic, partition, committed)]


def log_end(broker: EmbeddedBroker, tp: TopicPartition) -> int:
    return broker.call(lambda inside: inside.replicas.find(tp.topic, tp.partition).log.log_end_offset)
