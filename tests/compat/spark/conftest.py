"""Spark, a separate broker process (`HEADRACE_COMPAT_BROKER=kafka`: Apache Kafka), and both formats."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.broker.process import Broker
from tests.support.broker.under_test import make_broker
from tests.support.spark.formats import Formats
from tests.support.spark.session import kafka_connector, spark  # noqa: F401

BROKER = {"group.initial.rebalance.delay.ms": 0, "log.cleaner.backoff.ms": 200}


@pytest.fixture(scope="session")
def spark_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with make_broker(tmp_path_factory.mktemp("spark-broker") / "data", BROKER) as running:
        yield running


@pytest.fixture(scope="session")
def formats(spark: Any, kafka_connector: str, spark_broker: Broker) -> Iterator[Formats]:  # noqa: F811
    both = Formats(spark, spark_broker.bootstrap)
    yield both
    both.close()
