"""Reads a broker's log with plain Fetch requests."""

from tests.support.net.wire_calls import fetch
from tests.support.net.wire_client import WireClient

from headrace.common.types import TopicPartition
from headrace.records import Record, decode_rows, split_batches
from headrace.testing import EmbeddedBroker

READ_COMMITTED = 1


def read_records(broker: EmbeddedBroker, topic: str, partition: int = 0, committed: bool = False) -> list[Record]:
    """Returns all records of a partition; with `committed`, without those of aborted and open transactions."""
    records: list[Record] = []
    offset = 0
    with WireClient(broker.address) as client:
        while True:
            response = fetch(client, offset, topic, partition, isolation_level=READ_COMMITTED if committed else 0)
            assert response.error_code == 0, response.error_code
            end = response.last_stable_offset if committed else response.high_watermark
            aborted: dict[int, list[int]] = {}
            for transaction in sorted(response.aborted_transactions or (), key=lambda aborted: aborted.first_offset):
                aborted.setdefault(transaction.producer_id, []).append(transaction.first_offset)
            batches = split_batches(bytes(response.records or b""), allow_partial=True)
            if offset >= end or not batches:
                return records
            for batch in batches:
                offset = batch.next_offset
                first_offsets = aborted.get(batch.producer_id)
                is_aborted = bool(first_offsets) and batch.is_transactional and batch.base_offset >= first_offsets[0]
                if batch.is_control and is_aborted:
                    first_offsets.pop(0)
                elif not batch.is_control and not is_aborted:
                    records += decode_rows(batch.records())


def read_values(broker: EmbeddedBroker, topic: str, partition: int = 0, committed: bool = False) -> list[bytes | None]:
    return [record.value for record in read_records(broker, topic, partition, committed)]


def log_end(broker: EmbeddedBroker, tp: TopicPartition) -> int:
    return broker.call(lambda inside: inside.replicas.find(tp.topic, tp.partition).log.log_end_offset)
