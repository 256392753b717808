"""Who knows kafka-python finds the same methods here, with the same arguments in the same places."""

import inspect

import kafka
import pytest

import headrace

_PRODUCER_ELSEWHERE = {"max_usable_produce_magic"}
_CONSUMER_ELSEWHERE = {"bootstrap"}
"""What there is no need for: what is sent is always the newest format, and what is used connects by itself."""


@pytest.mark.parametrize(
    ("theirs", "ours", "elsewhere"),
    [
        (kafka.KafkaProducer, headrace.Producer, _PRODUCER_ELSEWHERE),
        (kafka.KafkaConsumer, headrace.Consumer, _CONSUMER_ELSEWHERE),
    ],
    ids=["producer", "consumer"],
)
def test_methods_of_kafka_python(theirs: type, ours: type, elsewhere: set[str]) -> None:
    names = {name for name, each in inspect.getmembers(theirs, callable) if not name.startswith("_")} - elsewhere
    assert [name for name in sorted(names) if not hasattr(ours, name)] == []
    for name in sorted(names):
        wanted = list(inspect.signature(getattr(theirs, name)).parameters)
        given = list(inspect.signature(getattr(ours, name)).parameters)
        wanted = [each for each in wanted if each not in ("raw", "null_logger")]
        assert given[: len(wanted)] == wanted, name


def test_fields_of_kafka_python() -> None:
    from kafka.consumer.fetcher import ConsumerRecord
    from kafka.producer.future import RecordMetadata
    from kafka.structs import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

    assert headrace.ConsumerRecord._fields == ConsumerRecord._fields
    assert headrace.TopicPartition._fields == TopicPartition._fields
    assert {headrace.TopicPartition("t", 1): 7}[TopicPartition("t", 1)] == 7
    assert headrace.OffsetAndMetadata._fields == OffsetAndMetadata._fields
    assert headrace.OffsetAndTimestamp._fields == OffsetAndTimestamp._fields
    assert set(RecordMetadata._fields) - set(headrace.RecordMetadata._fields) <= {"topic_partition", "checksum"}
    assert hasattr(headrace.RecordMetadata, "topic_partition")
