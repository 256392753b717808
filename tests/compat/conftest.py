"""Apache Kafka for these tests, and directories that it wrote; where it cannot be had, they skip with the reason."""

import pytest
from tests.support.apache_kafka import KafkaUnavailable, kafka_classpath
from tests.support.kafka_files import KafkaFiles, write_kafka_files


@pytest.fixture(scope="session")
def apache_kafka() -> None:
    try:
        kafka_classpath()
    except KafkaUnavailable as error:
        pytest.skip(f"Apache Kafka is not available: {error}")


@pytest.fixture(scope="session")
def kafka_files(apache_kafka: None, tmp_path_factory: pytest.TempPathFactory) -> KafkaFiles:
    return write_kafka_files(tmp_path_factory.mktemp("kafka-files"))
