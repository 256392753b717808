"""A standalone cluster, master and two workers: the format, the demo with its audit, and a pipeline whose executors are
killed, as users run them."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.apache_kafka.jvm import KafkaUnavailable
from tests.support.broker.process import Broker, eventually
from tests.support.spark.cluster import EXECUTOR_SETTINGS, SparkCluster, kill_tree, start_headrace, start_python
from tests.support.spark.distinct_pipeline import write_distinct_pipeline
from tests.support.spark.formats import Formats
from tests.support.spark.session import QUICK_JVM
from tests.support.spark.topic_rows import put, records

from headrace.admin import Admin, NewTopic

pytestmark = pytest.mark.timeout(1800)
JOB_SECONDS = 600
DEMO = Path(__file__).parents[3] / "examples" / "shop_demo.py"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    try:
        with SparkCluster(tmp_path_factory.mktemp("spark-cluster"), executor_options=QUICK_JVM) as running:
            yield running
    except KafkaUnavailable as error:
        pytest.skip(f"Spark needs Java: {error}")


def test_format_headrace_on_two_workers(cluster: SparkCluster, formats: Formats, tmp_path: Path) -> None:
    source, target = formats.new_topic(4), formats.new_topic(4)
    log = tmp_path / "job.log"
    settings = json.dumps(EXECUTOR_SETTINGS)
    arguments = [cluster.master, formats.bootstrap, source, target, tmp_path / "checkpoint", settings]
    job = start_python(["-m", "tests.support.spark.cluster_job", *arguments], log)
    try:
        assert job.wait(JOB_SECONDS) == 0, log.read_text()
    finally:
        kill_tree(job.pid)
        job.wait()
    found = json.loads([line for line in log.read_text().splitlines() if line.startswith("{")][-1])
    assert found["numbers"] == list(range(1000))
    assert sum(found["batches"]) == 1000
    assert len(found["batches"]) == 4
    assert found["executors"] == 2
    assert sorted(map(int, formats.values(target))) == list(range(1000))


def test_demo(cluster: SparkCluster, tmp_path: Path) -> None:
    """`make run MASTER=spark://...`: both pipelines on the two workers, and the audit of every row."""
    log = tmp_path / "demo.log"
    options = ["--events", 2000, "--rate", 500, "--chart", tmp_path / "chart.html", "--directory", tmp_path / "data"]
    process = start_python([DEMO, *options, "--master", cluster.master], log, {"SPARK_LOCAL_IP": "127.0.0.1"})
    try:
        assert process.wait(2 * JOB_SECONDS) == 0, log.read_text()
    finally:
        kill_tree(process.pid)
        process.wait()
    shown = log.read_text()
    assert "audit passed: nothing lost, nothing doubled, order per key intact" in shown
    assert "their page views match dwd_page" in shown


def test_arrow_flow_with_killed_executors(cluster: SparkCluster, spark_broker: Broker, tmp_path: Path) -> None:
    """The state of a killed executor is restored on another one; every key is written once. The function and the state
    are in files that only the driver sees."""
    servers, keys = spark_broker.bootstrap, 900
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic("distinct-in", 3)])
    put(servers, "distinct-in", [(f"k{number % keys}", f"{number}".encode()) for number in range(3 * keys)])
    (tmp_path / "driver").mkdir()
    file = write_distinct_pipeline(tmp_path / "driver")
    log, checkpoint = tmp_path / "pipeline.log", tmp_path / "checkpoint"
    arguments: list[object] = ["pipeline", "run", file, "--bootstrap-server", servers, "--master", cluster.master]
    for key, value in EXECUTOR_SETTINGS.items():
        arguments += ["--conf", f"{key}={value}"]
    arguments += ["--checkpoint", checkpoint, "--max-rows", 300, "--available-now", "--quiet"]

    def committed() -> int:
        return len(list(checkpoint.glob("*/*/query/commits/[0-9]*")))

    process = start_headrace(arguments, log)
    try:
        for batches in (2, 5):
            eventually(
                lambda least=batches: committed() >= least or process.poll() is not None, "batches commit", JOB_SECONDS
            )
            assert process.poll() is None, log.read_text()
            os.kill(cluster.executors()[0], signal.SIGKILL)
        assert process.wait(JOB_SECONDS) == 0, log.read_text()
    finally:
        kill_tree(process.pid)
        process.wait()
    written = [(record.key.decode(), int(record.value)) for record in records(servers, "distinct-out")]
    assert sorted(written) == sorted((f"k{number}", number) for number in range(keys))
