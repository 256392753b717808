"""The clients have kafka-python's methods, with the same parameters in the same order."""

import inspect

import kafka
import pytest

import headrace
import headrace.errors

_PRODUCER_OMITTED = {"max_usable_produce_magic"}
_CONSUMER_OMITTED = {"bootstrap"}
"""Methods that are not needed: records always have the newest format, and clients connect on first use."""


@pytest.mark.parametrize(
    ("theirs", "ours", "omitted"),
    [
        (kafka.KafkaProducer, headrace.Producer, _PRODUCER_OMITTED),
        (kafka.KafkaConsumer, headrace.Consumer, _CONSUMER_OMITTED),
    ],
    ids=["producer", "consumer"],
)
def test_methods_of_kafka_python(theirs: type, ours: type, omitted: set[str]) -> None:
    names = {name for name, each in inspect.getmembers(theirs, callable) if not name.startswith("_")} - omitted
    assert [name for name in sorted(names) if not hasattr(ours, name)] == []
    for name in sorted(names):
        expected = list(inspect.signature(getattr(theirs, name)).parameters)
        actual = list(inspect.signature(getattr(ours, name)).parameters)
        # All timeouts of Headrace are in milliseconds; the producer's are seconds in kafka-python.
        expected = ["timeout_ms" if each == "timeout" else each for each in expected]
        expected = [each for each in expected if each not in ("raw", "null_logger")]
        assert actual[: len(expected)] == expected, name


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
"""Errors that kafka-python uses internally, or that cannot occur here. An invalid response closes the connection and
raises KafkaConnectionError."""

_BASES = ("KafkaError", "RetriableError", "InvalidMetadataError", "BrokerResponseError", "AuthorizationError")


def kafka_python_errors() -> dict[str, type[kafka.errors.KafkaError]]:
    found = vars(kafka.errors).items()
    return {name: each for name, each in found if inspect.isclass(each) and issubclass(each, kafka.errors.KafkaError)}


def test_errors_of_kafka_python() -> None:
    assert set(kafka_python_errors()) - set(headrace.errors.__all__) == _NEVER_RAISED


@pytest.mark.parametrize("name", sorted(set(kafka_python_errors()) - _NEVER_RAISED))
def test_errors_have_the_base_classes_of_kafka_python(name: str) -> None:
    theirs, ours = kafka_python_errors()[name], getattr(headrace.errors, name)
    if name == "KafkaConfigurationError":
        assert issubclass(ours, ValueError)  # not a KafkaError: the program is wrong
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
