"""Apache Kafka for these tests; where it cannot be had, they are skipped with the reason."""

import pytest
from tests.support.apache_kafka import KafkaUnavailable, kafka_classpath


@pytest.fixture(scope="session")
def apache_kafka() -> None:
    try:
        kafka_classpath()
    except KafkaUnavailable as error:
        pytest.skip(f"Apache Kafka is not available: {error}")
