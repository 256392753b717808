"""Who knows kafka-python finds the same methods here, with the same arguments in the same places."""

import inspect

import kafka
import pytest

import headrace
import headrace.errors

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


_NEVER_RAISED = {
    "Cancelled",
    "CorrelationIdError",
    "InvalidReceiveError",
    "KafkaProtocolError",
    "MetadataEmptyBrokerList",
    "NoError",
    "QuotaViolationError",
    "StaleMetadata",
    "TooManyInFlightRequests",
    "UnrecognizedBrokerVersion",
    "UnsupportedCodecError",
}
"""What kafka-python has for its own parts to tell each other, or for what cannot happen here. A reply that makes no
sense costs the connection: KafkaConnectionError."""

_BASES = ("KafkaError", "RetriableError", "InvalidMetadataError", "BrokerResponseError", "AuthorizationError")


def kafka_python_errors() -> dict[str, type[kafka.errors.KafkaError]]:
    found = vars(kafka.errors).items()
    return {name: each for name, each in found if inspect.isclass(each) and issubclass(each, kafka.errors.KafkaError)}


def test_errors_of_kafka_python() -> None:
    assert set(kafka_python_errors()) - set(headrace.errors.__all__) == _NEVER_RAISED


@pytest.mark.parametrize("name", sorted(set(kafka_python_errors()) - _NEVER_RAISED))
def test_what_catches_an_error_of_kafka_python_catches_it_here(name: str) -> None:
    theirs, ours = kafka_python_errors()[name], getattr(headrace.errors, name)
    if name == "KafkaConfigurationError":
        assert issubclass(ours, ValueError)  # and no KafkaError: what is wrong is the program
        return
    for each in theirs.__mro__:
        if each.__name__ in headrace.errors.__all__:
            assert issubclass(ours, getattr(headrace.errors, each.__name__)), each.__name__
    for base in _BASES[3:]:
        assert issubclass(ours, getattr(headrace.errors, base)) == issubclass(theirs, getattr(kafka.errors, base)), base
    if theirs.retriable:
        assert ours.retriable
    if theirs.invalid_metadata:
        assert ours.invalid_metadata
    if issubclass(theirs, kafka.errors.BrokerResponseError) and theirs.errno is not None:
        assert ours.errno == theirs.errno
        assert ours.message
        assert ours.description
