"""Every client reads the records of every other: all codecs, keys, values, headers, sizes and timestamps.

Each writer fills one topic, a partition for each codec. The readers then compare record by record.
"""

from collections.abc import Callable
from functools import cache

import pytest
from tests.support.apache_kafka.dump_log import dump_log
from tests.support.broker.clients import Client
from tests.support.broker.process import Broker
from tests.support.broker.records import CODECS, START_MS, Record, assert_same, sample_records, with_offsets

CLIENTS = ("confluent-kafka", "kafka-python", "aiokafka", "kcat", "kafka-clients")
PARTITIONS = range(len(CODECS))


@pytest.fixture(scope="module")
def written(
    get_client: Callable[[str], Client], new_topic: Callable[..., str]
) -> Callable[[str], tuple[str, list[Record]]]:
    """A topic that a client has filled, and the records expected in it."""

    @cache
    def write(name: str) -> tuple[str, list[Record]]:
        client = get_client(name)
        topic = new_topic(len(CODECS), prefix=f"records-{name}")
        records = []
        for partition, codec in enumerate(CODECS):
            rows = [each for each in sample_records(partition) if client.can_write(each)]
            acks = client.write(topic, rows, codec)
            assert [(ack.offset, ack.error) for ack in acks] == [(offset, 0) for offset in range(len(acks))]
            records += rows
        return topic, with_offsets(records)

    return write


@pytest.mark.parametrize("writer", CLIENTS)
@pytest.mark.parametrize("reader", CLIENTS)
def test_all_clients_read_records_of_each_client(
    written: Callable[[str], tuple[str, list[Record]]], get_client: Callable[[str], Client], writer: str, reader: str
) -> None:
    topic, expected = written(writer)
    found = get_client(reader).read(topic, PARTITIONS)
    if not get_client(writer).writes_timestamps:
        assert all(record.timestamp and record.timestamp > START_MS + 3_600_000 for record in found)
        found = [record._replace(timestamp=None) for record in found]
        expected = [record._replace(timestamp=None) for record in expected]
    assert_same(found, expected)


def test_keeps_the_producers_compression(
    apache_kafka: None, broker: Broker, written: Callable[[str], tuple[str, list[Record]]]
) -> None:
    """librdkafka silently does not compress if it believes that the broker does not support it."""
    files = {
        (name, codec): broker.data_dir / f"{written(name)[0]}-{partition}" / f"{0:020}.log"
        for name in CLIENTS
        for partition, codec in enumerate(CODECS)
    }
    dump = dump_log(*files.values(), deep=False)
    assert dump.problems == []
    found = {key: {batch.fields["compresscodec"] for batch in dump.batches_of(file)} for key, file in files.items()}
    expected = {(name, codec): {codec} for name, codec in files}
    # librdkafka does not compress a batch if that would not make it smaller.
    plain = {key: codecs - {"none"} or {"none"} for key, codecs in found.items()}
    assert plain == expected
