import gc
import logging
from collections.abc import Iterator

import pytest
from tests.support.apache_kafka.broker import LAST_WITH_ZOOKEEPER, KafkaUnavailable, kafka_classpath


@pytest.fixture(scope="session")
def apache_kafka_3() -> None:
    try:
        kafka_classpath(LAST_WITH_ZOOKEEPER)
    except KafkaUnavailable as error:
        pytest.skip(f"Apache Kafka {LAST_WITH_ZOOKEEPER.version} is not available: {error}")


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Silences the clients' logs about missing brokers, and kafka-python's unclosed sockets."""
    caplog.set_level(logging.CRITICAL, "kafka")
    yield
    gc.collect()  # here, where its warnings are ignored
