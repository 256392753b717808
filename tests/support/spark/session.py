"""One Spark session for the whole run, with Spark's own Kafka connector (`format("kafka")`) if its jars are available.

A test directory that needs it imports the fixtures in its conftest.py:

    from tests.support.spark.session import kafka_connector, spark  # noqa: F401

Spark runs once per process (`local[2,2]`: two cores, and one retry of a failed task), so a test must neither stop it
nor change its settings permanently: `with settings(spark, {...})`. A test stops the queries that it starts. The
connector's jars are downloaded from Maven Central into the cache of Apache Kafka's jars. The connector's last release
is older than Spark's; its release for Spark 4.2 runs on Spark 4.3. It needs a token provider, whose last release is
older still, and which is used only with delegation tokens.
"""

import atexit
import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.support.apache_kafka.jvm import KafkaUnavailable, fetch_jars, require_java

CONNECTOR_VERSION = "4.2.0"
_CONNECTOR = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", CONNECTOR_VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.1.0-preview1"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""JVM options for little data, where optimizing takes longer than running."""
_ROOT = Path(__file__).parents[3]
_LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d] %p %m (%c)%n%throwable{short}
rootLogger.level = ERROR
rootLogger.appenderRef.console.ref = console
logger.tasks.name = org.apache.spark
logger.tasks.level = OFF
logger.clients.name = org.apache.kafka
logger.clients.level = OFF
"""


@cache
def connector_jars() -> tuple[Path, ...]:
    """Returns the jars of Spark's Kafka connector; raises `KafkaUnavailable`."""
    require_java()
    name = f"spark-kafka-connector-{CONNECTOR_VERSION}"
    home = fetch_jars(name, f"Spark's Kafka connector {CONNECTOR_VERSION}", _CONNECTOR, transitive=False)
    return tuple(sorted((home / "libs").glob("*.jar")))


def worker_environment() -> dict[str, str]:
    """Returns the environment in which Spark's workers use this Python and can import Headrace and the tests."""
    path = [str(_ROOT / "src"), str(_ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(path)),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def session_settings(directory: Path) -> dict[str, str]:
    """Returns settings for a small, quiet session that writes only to *directory*."""
    logging = directory / "log4j2.properties"
    logging.write_text(_LOGGING)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"{QUICK_JVM} -Dlog4j2.configurationFile={logging}",
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
    }
    with contextlib.suppress(KafkaUnavailable):
        settings["spark.jars"] = ",".join(map(str, connector_jars()))
    return settings


@cache
def shared_session() -> Any:
    """Returns the run's `SparkSession`, started on first use; raises `KafkaUnavailable` without Java."""
    require_java()
    os.environ.update(worker_environment())
    from pyspark.sql import SparkSession

    directory = tempfile.TemporaryDirectory(prefix="headrace-spark-", ignore_cleanup_errors=True)
    builder = SparkSession.builder.appName("headrace-tests").master("local[2,2]")
    session = builder.config(map=session_settings(Path(directory.name))).getOrCreate()

    def end() -> None:
        for query in session.streams.active:
            query.stop()
        session.stop()
        directory.cleanup()

    atexit.register(end)
    return session


@contextlib.contextmanager
def settings(spark: Any, changes: Mapping[str, object]) -> Iterator[None]:
    """Changes settings of the session within the block."""
    before = {key: spark.conf.get(key, None) for key in changes}
    for key, value in changes.items():
        spark.conf.set(key, str(value))
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, value)


@pytest.fixture(scope="session")
def spark() -> Any:
    """The run's `SparkSession`. It is the same object wherever this fixture is imported, and ends with the process."""
    try:
        return shared_session()
    except KafkaUnavailable as error:
        pytest.skip(f"Spark needs Java: {error}")


@pytest.fixture(scope="session")
def kafka_connector(spark: Any) -> str:
    """The version of Spark's own connector in the session, which tests reach as `format("kafka")`."""
    try:
        connector_jars()
    except KafkaUnavailable as error:
        pytest.skip(f"Spark's Kafka connector is not available: {error}")
    return CONNECTOR_VERSION
