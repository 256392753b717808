"""`headrace.spark.session`: its configs, and those that it leaves to the user."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.spark.session import session_settings, worker_environment

import headrace
from headrace.spark import session
from headrace.spark.sessions import SETTINGS, let_streams_start_together
from headrace.testing import EmbeddedBroker

ZONE = "spark.sql.session.timeZone"

PROGRAM = f"""
import json, sys
from headrace.spark import session

spark = session("mine", "local[1]", spark__sql__shuffle__partitions=3)
names = ["{ZONE}", "spark.sql.python.filterPushdown.enabled", "spark.sql.shuffle.partitions", "spark.app.name",
         "spark.master", "spark.driver.memory"]
print(json.dumps([spark.conf.get(name) for name in names]))
spark.stop()
"""


def test_user_configuration_takes_precedence(spark: Any, tmp_path: Path) -> None:
    settings = {**session_settings(tmp_path), ZONE: "Europe/Vienna", "spark.driver.memory": "600m"}
    (tmp_path / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    environment = {**os.environ, **worker_environment(), "SPARK_CONF_DIR": str(tmp_path)}
    ran = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == ["Europe/Vienna", "true", "3", "mine", "local[1]", "600m"]


def test_reuses_active_session(spark: Any) -> None:
    before = {name: spark.conf.get(name, None) for name in SETTINGS}
    spark.conf.set(ZONE, "Asia/Tokyo")
    try:
        same = session("another", "local[1]", **{"spark.sql.shuffle.partitions": 2})
        assert same.conf.get(ZONE) == "Asia/Tokyo"
        assert same.sparkContext is spark.sparkContext
    finally:
        spark.conf.set(ZONE, before[ZONE])
    assert {name: spark.conf.get(name, None) for name in SETTINGS} == before


def test_concurrent_stream_starts_do_not_grow_the_environment(spark: Any) -> None:
    """Spark has one map of environment variables for the format, which streams change without a lock."""
    let_streams_start_together(spark)
    shared = (
        spark._jsparkSession.sessionState().dataSourceManager().lookupDataSource("headrace").dataSourceCls().envVars()
    )
    before = {*shared.keySet().toArray()}
    with EmbeddedBroker() as broker:
        broker.create_topic("alone", 1)
        options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "alone"}
        stream = spark.readStream.format("headrace").options(**options).load()
        query = stream.writeStream.format("noop").trigger(availableNow=True).start()
        assert query.awaitTermination(120)
    assert {*shared.keySet().toArray()} == before
    assert shared.get("SPARK_BUFFER_SIZE"), "the stream set its own value"


IMPORTS = """
import sys
from headrace.spark import session

def report(batches):
    import gc
    import pyarrow as pa
    import pyspark

    for batch in batches:
        line = f"{gc.get_freeze_count() > 1000} {'pyspark.zip' in pyspark.__file__} {batch.column(0)[0].as_py()}"
        yield pa.record_batch({"line": [line]})

spark = session("mine", "local[1]")
options = {"kafka.bootstrap.servers": sys.argv[1], "subscribe": "few"}
rows = spark.read.format("headrace").options(**options).load().select("topic")
print("pandas imported:", "pandas" in sys.modules)
print(rows.mapInArrow(report, "line string").collect())
spark.stop()
"""


def test_workers_are_frozen_and_import_little(spark: Any, tmp_path: Path) -> None:
    settings = session_settings(tmp_path)
    (tmp_path / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    environment = {**os.environ, **worker_environment(), "SPARK_CONF_DIR": str(tmp_path)}
    with EmbeddedBroker(topics={"few": 1}) as broker:
        with headrace.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("few", b"1")
        command = [sys.executable, "-c", IMPORTS, broker.bootstrap_servers]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert "True False few" in ran.stdout
    assert "pandas imported: False" in ran.stdout
