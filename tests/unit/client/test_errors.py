import pickle
import subprocess
import sys

import pytest

import headrace.errors
from headrace import errors
from headrace.client.consumer.errors import _Located
from headrace.client.errors import KafkaTimeoutError, check, error_for, is_stale_metadata
from headrace.common.errors import (
    ERRORS_BY_CODE,
    KafkaError,
    NotLeaderForPartitionError,
    ProducerFencedError,
    TopicAlreadyExistsError,
    UnknownError,
)
from headrace.common.types import TopicPartition


def test_headrace_errors_exports_all_errors() -> None:
    for cls in ERRORS_BY_CODE.values():
        assert getattr(errors, cls.__name__) is cls
    for name in ("KafkaTimeoutError", "NoBrokersAvailable", "CommitFailedError", "IllegalStateError", "ConfigError"):
        assert name in headrace.errors.__all__
    assert all(issubclass(getattr(errors, name), Exception) for name in errors.__all__)


def test_client_errors_are_kafka_errors() -> None:
    from headrace.client import errors as own

    raised = [value for value in vars(own).values() if isinstance(value, type) and issubclass(value, Exception)]
    assert all(issubclass(each, KafkaError) for each in raised)
    assert issubclass(KafkaTimeoutError, TimeoutError)


@pytest.mark.parametrize("name", sorted(errors.__all__))
def test_retriable_errors_share_a_base_class(name: str) -> None:
    cls = getattr(errors, name)
    if issubclass(cls, KafkaError):
        assert issubclass(cls, errors.RetriableError) == cls.retriable
        assert issubclass(cls, errors.InvalidMetadataError) == cls.invalid_metadata
        if cls in ERRORS_BY_CODE.values():
            assert issubclass(cls, errors.BrokerResponseError)
            assert (cls.errno, cls.message) == (cls.code, cls.name)


def test_connection_error_is_not_a_broker_response() -> None:
    assert not issubclass(errors.KafkaConnectionError, errors.BrokerResponseError)
    assert errors.KafkaConnectionError.code == errors.NetworkExceptionError.code == 13
    assert ERRORS_BY_CODE[13] is errors.NetworkExceptionError


def test_error_for_returns_the_class_of_a_code() -> None:
    assert error_for(0) is None
    error = error_for(36, "it is there")
    assert isinstance(error, TopicAlreadyExistsError)
    assert str(error) == "it is there"
    assert str(error_for(36)) == (TopicAlreadyExistsError.__doc__ or "").split("\n")[0]
    assert type(error_for(31_000)) is UnknownError
    assert "31000" in str(error_for(31_000))
    check(0)
    with pytest.raises(TopicAlreadyExistsError):
        check(36)


def test_errors_that_indicate_stale_metadata() -> None:
    assert is_stale_metadata(NotLeaderForPartitionError())
    assert is_stale_metadata(NotLeaderForPartitionError)
    assert is_stale_metadata(6)
    assert is_stale_metadata(errors.KafkaConnectionError("lost"))
    assert not is_stale_metadata(TopicAlreadyExistsError())
    assert not is_stale_metadata(0)


def test_error_flags_can_be_set() -> None:
    error = ProducerFencedError("another one has come")
    assert (error.fatal, error.abortable) == (False, False)
    error.fatal = True
    assert error.fatal
    assert not ProducerFencedError("x").fatal


def test_import_does_not_load_arrow() -> None:
    code = "import sys, headrace; headrace.TopicPartition; print(sorted(set(sys.modules) & {'pyarrow', 'asyncio'}))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
    assert set(headrace.__all__) <= set(dir(headrace))
    aliases = {"Headers", "OnCommit", "OnDelivery", "Partitioner"}
    assert all(getattr(headrace, name).__name__ == name for name in set(headrace.__all__) - aliases)
    assert all(getattr(headrace, name) for name in aliases)
    with pytest.raises(AttributeError, match="has no attribute 'Nonsense'"):
        _ = headrace.Nonsense


@pytest.mark.parametrize("name", ["Producer", "Consumer"])
def test_client_imports_only_needed_modules(name: str) -> None:
    """Each of these modules takes memory: the server, codecs, and the dependencies of the checksum package."""
    heavy = {"pyarrow", "cramjam", "argparse", "importlib.metadata", "headrace.net.server", "headrace.broker"}
    code = f"import sys, headrace; headrace.{name}; print(sorted(set(sys.modules) & {heavy!r}))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize("name", errors.__all__)
def test_errors_can_be_pickled(name: str) -> None:
    cls = getattr(errors, name)
    parts: tuple[object, ...] = ("what happened",)
    if issubclass(cls, _Located):
        parts = (TopicPartition("t", 3), 7, *{"OffsetsLostError": ()}.get(name, (None,)))
    error = cls(*parts)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls
    assert str(again) == str(error)
    assert {key: value for key, value in vars(again).items() if key != "_parts"} == {
        key: value for key, value in vars(error).items() if key != "_parts"
    }
