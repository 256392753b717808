import pytest

from headrace.common import errors
from headrace.common.errors import ERRORS_BY_CODE, ConfigError, CorruptRecordError, HeadraceError, KafkaError

# As in org.apache.kafka.common.protocol.Errors; those that extend RetriableException may be tried again.
KAFKAS = {
    -1: ("UNKNOWN_SERVER_ERROR", False),
    1: ("OFFSET_OUT_OF_RANGE", False),
    2: ("CORRUPT_MESSAGE", True),
    10: ("MESSAGE_TOO_LARGE", False),
    18: ("RECORD_LIST_TOO_LARGE", False),
    32: ("INVALID_TIMESTAMP", False),
    43: ("UNSUPPORTED_FOR_MESSAGE_FORMAT", False),
    45: ("OUT_OF_ORDER_SEQUENCE_NUMBER", False),
    47: ("INVALID_PRODUCER_EPOCH", False),
    48: ("INVALID_TXN_STATE", False),
    52: ("TRANSACTION_COORDINATOR_FENCED", False),
    56: ("KAFKA_STORAGE_ERROR", True),
    76: ("UNSUPPORTED_COMPRESSION_TYPE", False),
    87: ("INVALID_RECORD", False),
}


@pytest.mark.parametrize("code", KAFKAS)
def test_every_error_is_the_protocols(code: int) -> None:
    error = ERRORS_BY_CODE[code]
    assert (error.name, error.retriable) == KAFKAS[code]
    assert error.code == code
    assert issubclass(error, KafkaError)
    assert error.__doc__


def test_a_narrower_error_does_not_take_the_place_of_its_code() -> None:
    assert errors.InflatedTooLargeError.code == 2
    assert ERRORS_BY_CODE[2] is CorruptRecordError


def test_a_corrupt_record_tells_where() -> None:
    assert CorruptRecordError("torn", 17).position == 17
    assert CorruptRecordError("torn").position is None
    assert str(CorruptRecordError("torn", 17)) == "torn"


def test_a_bad_setting_is_a_bad_value() -> None:
    assert issubclass(ConfigError, ValueError)
    assert issubclass(ConfigError, HeadraceError)
    assert not issubclass(ConfigError, KafkaError)
