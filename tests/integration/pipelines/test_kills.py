"""`ods-dwd` with its driver, its tasks or the broker killed at chosen points; the audit tells if anything is lost,
doubled or out of order.

The points are requests that the broker gets: a fault holds one up, so that the kill comes while it is under way. The
pipeline runs as a user runs it, in processes of its own; the audit in the Spark of the tests.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker_process import eventually
from tests.support.spark_cluster import descendants, kill_tree, start_headrace
from tests.support.spark_session import QUICK_JVM

from headrace.pipelines.audit import audit
from headrace.pipelines.datagen import StreamSettings, create_topics, generate
from headrace.pipelines.datagen.visits import DB, LOG
from headrace.protocol import ApiKey
from headrace.testing import EmbeddedBroker

pytestmark = pytest.mark.timeout(1800)

EVENTS = 3000
ROWS_PER_BATCH = 900
SECONDS = 400.0
SHOP = StreamSettings(events=EVENTS, span_ms=600_000, devices=100, broken=0.02, late=0.02, duplicates=0.04)


class Lab:
    """A broker with the shop's events, and the pipeline that is run on them, again and again."""

    def __init__(self, broker: EmbeddedBroker, directory: Path) -> None:
        self.broker = broker
        self.log = directory / "pipeline.log"
        self.checkpoint = directory / "checkpoint"
        create_topics(broker.bootstrap_servers, 2, {LOG: "ods_log", DB: "ods_db"})
        start_ms = int(time.time()) * 1000 - 3_600_000
        generate(broker.bootstrap_servers, SHOP, start_ms=start_ms, topics={LOG: "ods_log", DB: "ods_db"})

    def start(self, master: str = "local[2]") -> subprocess.Popen[bytes]:
        place = ["--bootstrap-server", self.broker.bootstrap_servers, "--checkpoint", self.checkpoint]
        how = ["--master", master, "--max-rows", ROWS_PER_BATCH, "--available-now", "--quiet"]
        small = ["--conf", "spark.driver.memory=700m", "--conf", f"spark.driver.extraJavaOptions={QUICK_JVM}"]
        return start_headrace(["pipeline", "run", "ods-dwd", *place, *how, *small], self.log)

    @contextmanager
    def run_until(self, point: "Point", master: str = "local[2]") -> Iterator[subprocess.Popen[bytes]]:
        """The pipeline, when it has come to a point. At the end of the block it is gone."""
        reached = point(self)
        process = self.start(master)
        try:
            deadline = time.monotonic() + SECONDS
            while not reached():
                if process.poll() is not None:
                    self._let_start_again()
                    process = self.start(master)
                assert time.monotonic() < deadline, self.log.read_text()
                time.sleep(0.01)
            yield process
        finally:
            kill_tree(process.pid)
            process.wait()
            self.broker.faults.clear()

    def run_to_the_end(self) -> None:
        process = self.start()
        try:
            while process.wait(SECONDS) != 0:
                self._let_start_again()
                process = self.start()
        finally:
            kill_tree(process.pid)
            process.wait()

    def _let_start_again(self) -> None:
        """A pipeline may end early only because Spark gives its Python processes 10 s to start, too little for a busy
        machine."""
        said = self.log.read_text()
        assert "failed to connect back" in said, f"the pipeline has ended\n{said}"
        self.log.write_text("")

    def committed_batches(self) -> int:
        return len(list(self.checkpoint.glob("*/*/query/commits/[0-9]*")))

    def check(self, spark: Any) -> None:
        report = audit(spark, self.broker.bootstrap_servers)
        assert report.ok, "\n".join(report.lines())
        assert sum(output.rows for output in report.outputs) > EVENTS, "\n".join(report.lines())


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with EmbeddedBroker() as broker:
        yield Lab(broker, tmp_path)


Point = Callable[[Lab], Callable[[], bool]]
"""Gets ready for a point in a run, and returns what tells that it is reached."""


def hold_up(api: ApiKey, how: str) -> Point:
    """A request of an API, not done (`before`), or done and not answered (`after`)."""

    def prepare(lab: Lab) -> Callable[[], bool]:
        faults = lab.broker.faults
        fault = faults.delay(api, 600_000, times=1) if how == "before" else faults.drop_reply(api, times=1)
        return lambda: fault.hits > 0

    return prepare


def batch_is_done(lab: Lab) -> Callable[[], bool]:
    """One batch more is committed, and the next may have begun."""
    before = lab.committed_batches()
    return lambda: lab.committed_batches() > before


POINTS = {
    "rows are written, without their marker": hold_up(ApiKey.TXN_OFFSET_COMMIT, "before"),
    "the marker is written, the transaction is open": hold_up(ApiKey.END_TXN, "before"),
    "the transaction is committed, and Spark does not know": hold_up(ApiKey.END_TXN, "after"),
    "between batches": batch_is_done,
}


def test_driver_is_killed(lab: Lab, spark: Any) -> None:
    """At one point after another; each run goes on where the last one was killed."""
    left: list[int] = []
    try:
        # The driver's process alone: its JVM and tasks notice later, while the next run works already.
        with lab.run_until(hold_up(ApiKey.TXN_OFFSET_COMMIT, "after")) as process:
            left = descendants(process.pid)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        # With all its processes.
        for point in POINTS.values():
            with lab.run_until(point):
                pass
        lab.run_to_the_end()
    finally:
        for pid in left:
            kill_tree(pid)
    lab.check(spark)


def test_tasks_and_broker_are_killed(lab: Lab, spark: Any) -> None:
    """A task while it writes, the broker while a task commits, a task again; the driver goes on through all of it."""
    with lab.run_until(hold_up(ApiKey.PRODUCE, "before"), "local[2,4]") as process:

        def go_on_until(point: Point) -> None:
            reached = point(lab)
            if not lab.broker.is_running:
                lab.broker.start()
            eventually(lambda: reached() or process.poll() is not None, "the run goes on", SECONDS)
            assert process.poll() is None, lab.log.read_text()

        kill_workers(lab, process)
        go_on_until(hold_up(ApiKey.END_TXN, "before"))
        lab.broker.kill()
        lab.broker.faults.clear()
        go_on_until(hold_up(ApiKey.END_TXN, "after"))
        kill_workers(lab, process)
        assert process.wait(SECONDS) == 0, lab.log.read_text()
    lab.check(spark)


def kill_workers(lab: Lab, process: subprocess.Popen[bytes]) -> None:
    workers = python_workers(process.pid)
    assert workers, lab.log.read_text()
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    lab.broker.faults.clear()


def python_workers(pid: int) -> list[int]:
    """The processes below a driver in which Python runs tasks: the children of a daemon. There are others for what the
    driver itself does, which end a query when they are killed, as the driver does."""
    found = []
    for each in descendants(pid):
        try:
            command = Path(f"/proc/{each}/cmdline").read_bytes()
        except OSError:
            continue
        if b"daemon" in command and b"pyspark.worker" in command.split(b"\0"):
            found += [child for child in descendants(each) if child not in found]
    return found
