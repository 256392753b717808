"""`headrace pipeline run` with an Arrow pipeline from a file, whose driver is killed at chosen points.

A fault delays a request to the broker, so that the kill happens while it is in flight. Each run continues where the
last one was killed.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.apache_kafka.jvm import KafkaUnavailable, require_java
from tests.support.broker.process import eventually
from tests.support.spark.cluster import kill_tree, start_headrace
from tests.support.spark.distinct_pipeline import write_distinct_pipeline
from tests.support.spark.session import QUICK_JVM
from tests.support.spark.topic_rows import put, records

from headrace.protocol import ApiKey
from headrace.testing import EmbeddedBroker
from headrace.testing.faults import Fault

pytestmark = pytest.mark.timeout(1800)
SECONDS = 400.0
KEYS = 400
ALL_POINTS = os.environ.get("HEADRACE_PIPELINE_KILLS") == "all"
"""Kill at every point. Each point takes a start of Spark."""
ROWS = 3 * KEYS


class Lab:
    """A broker with records whose keys occur three times, and repeated runs of the pipeline."""

    def __init__(self, broker: EmbeddedBroker, directory: Path) -> None:
        self.broker = broker
        self.log = directory / "pipeline.log"
        self.checkpoint = directory / "checkpoint"
        self.file = write_distinct_pipeline(directory)
        broker.create_topic("distinct-in", 2)
        put(broker.bootstrap_servers, "distinct-in", [(f"k{n % KEYS}", f"{n}".encode()) for n in range(ROWS)])

    def start(self) -> subprocess.Popen[bytes]:
        place = ["--bootstrap-server", self.broker.bootstrap_servers, "--checkpoint", self.checkpoint]
        how = ["--master", "local[2]", "--max-rows", 150, "--available-now", "--quiet"]
        small = ["--conf", "spark.driver.memory=700m", "--conf", f"spark.driver.extraJavaOptions={QUICK_JVM}"]
        return start_headrace(["pipeline", "run", self.file, *place, *how, *small], self.log)

    @contextmanager
    def run_until(self, reached: Callable[[], bool]) -> Iterator[None]:
        """Runs the pipeline until it reaches a point, and then kills it with all its processes."""
        process = self.start()
        try:
            eventually(lambda: reached() or process.poll() is not None, "the run reaches the point", SECONDS)
            assert process.poll() is None, self.log.read_text()
            yield
        finally:
            kill_tree(process.pid)
            process.wait()
            self.broker.faults.clear()

    def committed_batches(self) -> int:
        return len(list(self.checkpoint.glob("*/*/query/commits/[0-9]*")))


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    try:
        require_java()
    except KafkaUnavailable as error:
        pytest.skip(f"Spark needs Java: {error}")
    with EmbeddedBroker() as broker:
        yield Lab(broker, tmp_path)


def test_arrow_pipeline_survives_driver_kills(lab: Lab) -> None:
    """Kills the driver while a transaction is open, after batches that are in the state; `make soak` at more points."""
    faults = lab.broker.faults
    held_up: list[Fault] = []

    def has_open_transaction() -> bool:
        if not held_up and lab.committed_batches() >= 2:
            held_up.append(faults.delay(ApiKey.END_TXN, 600_000, times=1))
        return any(fault.hits for fault in held_up)

    with lab.run_until(has_open_transaction):
        pass
    if ALL_POINTS:
        after = faults.drop_reply(ApiKey.END_TXN, times=1)
        with lab.run_until(lambda: after.hits > 0):
            pass
        batches = lab.committed_batches()
        with lab.run_until(lambda: lab.committed_batches() > batches):
            pass
    process = lab.start()
    try:
        assert process.wait(SECONDS) == 0, lab.log.read_text()
    finally:
        kill_tree(process.pid)
        process.wait()
    written = [
        (record.key.decode(), int(record.value)) for record in records(lab.broker.bootstrap_servers, "distinct-out")
    ]
    assert sorted(written) == sorted((f"k{number}", number) for number in range(KEYS))
