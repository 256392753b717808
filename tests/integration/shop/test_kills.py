"""The shop's pipelines with their driver, their tasks or the broker killed at chosen points. For `ods-dwd` the audit
detects lost, duplicate and disordered rows; the output of `dws-traffic` is compared with a few lines of Python. The
points are requests to the broker: a fault delays a request, so that the kill happens while it is in flight. The
pipeline runs as for a user, in separate processes; the audit runs in the Spark session of the tests.
"""

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker.process import eventually
from tests.support.spark.cluster import descendants, kill_tree, python_workers, start_headrace
from tests.support.spark.session import QUICK_JVM
from tests.support.spark.topic_rows import put, values

from headrace.protocol import ApiKey
from headrace.shop.audit import audit
from headrace.shop.datagen import StreamSettings, create_topics, generate
from headrace.shop.datagen.visits import DB, LOG
from headrace.shop.dws_traffic import ROW, SOURCES, TRAFFIC, latest
from headrace.shop.schemas import DWD_ORDER, DWD_PAGE
from headrace.testing import EmbeddedBroker

pytestmark = pytest.mark.timeout(1800)

EVENTS = 3000
ROWS_PER_BATCH = 900
SECONDS = 400.0
SHOP = StreamSettings(events=EVENTS, span_ms=600_000, devices=100, broken=0.02, late=0.02, duplicates=0.04)


class Lab:
    """A broker with the shop's events, and repeated runs of the pipeline."""

    pipeline = "ods-dwd"
    rows_per_batch = ROWS_PER_BATCH

    def __init__(self, broker: EmbeddedBroker, directory: Path) -> None:
        self.broker = broker
        self.log = directory / "pipeline.log"
        self.checkpoint = directory / "checkpoint"
        self.warehouse = directory / "tables"
        self.start_ms = int(time.time()) * 1000 - 3_600_000
        self.fill()

    def fill(self) -> None:
        create_topics(self.broker.bootstrap_servers, 2, {LOG: "ods_log", DB: "ods_db"})
        generate(self.broker.bootstrap_servers, SHOP, start_ms=self.start_ms, topics={LOG: "ods_log", DB: "ods_db"})

    def start(self, master: str = "local[2]") -> subprocess.Popen[bytes]:
        place = ["--bootstrap-server", self.broker.bootstrap_servers, "--checkpoint", self.checkpoint]
        place += ["--warehouse", self.warehouse]
        how = ["--master", master, "--max-rows", self.rows_per_batch, "--available-now", "--quiet"]
        how += ["--no-status"]  # the points are requests of tasks, not of the driver
        small = ["--conf", "spark.driver.memory=700m", "--conf", f"spark.driver.extraJavaOptions={QUICK_JVM}"]
        return start_headrace(["pipeline", "run", self.pipeline, *place, *how, *small], self.log)

    @contextmanager
    def run_until(self, point: "Point", master: str = "local[2]") -> Iterator[subprocess.Popen[bytes]]:
        """Runs the pipeline until it reaches a point, and kills it at the end of the block."""
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
        output = self.log.read_text()
        assert "failed to connect back" in output, f"the pipeline ended\n{output}"
        self.log.write_text("")

    def committed_batches(self) -> int:
        return len(list(self.checkpoint.glob("*/*/query/commits/[0-9]*")))

    def check(self, spark: Any) -> None:
        report = audit(self.broker.bootstrap_servers)
        assert report.ok, "\n".join(report.lines())
        assert sum(output.rows for output in report.outputs) > EVENTS, "\n".join(report.lines())


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with EmbeddedBroker() as broker:
        yield Lab(broker, tmp_path)


Point = Callable[[Lab], Callable[[], bool]]
"""Prepares a point of a run, and returns a function that returns True once the point is reached."""


def hold_up(api: ApiKey, how: str) -> Point:
    """Stops at a request: not processed yet (`before`), or processed without a response (`after`)."""

    def prepare(lab: Lab) -> Callable[[], bool]:
        faults = lab.broker.faults
        fault = faults.delay(api, 600_000, times=1) if how == "before" else faults.drop_reply(api, times=1)
        return lambda: fault.hits > 0

    return prepare


def batch_is_done(lab: Lab) -> Callable[[], bool]:
    """Waits until one more batch is committed."""
    before = lab.committed_batches()
    return lambda: lab.committed_batches() > before


ALL_POINTS = os.environ.get("HEADRACE_PIPELINE_KILLS") == "all"
"""Kill at every point. Each point takes a start of Spark. `test_arrow_kills` kills an open transaction in every run."""

POINTS = {"the transaction is committed, and Spark does not know": hold_up(ApiKey.END_TXN, "after")}
if ALL_POINTS:
    POINTS |= {
        "the marker is written, the transaction is open": hold_up(ApiKey.END_TXN, "before"),
        "rows are written, without their marker": hold_up(ApiKey.TXN_OFFSET_COMMIT, "before"),
        "between batches": batch_is_done,
    }


def test_ods_dwd_survives_driver_kills(lab: Lab, spark: Any) -> None:
    """Kills the driver at one point after another; each run continues where the last one was killed."""
    left: list[int] = []
    try:
        # Only the driver process: its JVM and tasks notice later, while the next run is already working.
        with lab.run_until(hold_up(ApiKey.TXN_OFFSET_COMMIT, "after")) as process:
            left = descendants(process.pid)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        # The driver with all its processes.
        for point in POINTS.values():
            with lab.run_until(point):
                pass
        lab.run_to_the_end()
    finally:
        for pid in left:
            kill_tree(pid)
    lab.check(spark)


class TrafficLab(Lab):
    """The same for `dws-traffic`, with clean rows of all kinds in a few minutes."""

    pipeline = "dws-traffic"
    rows_per_batch = 500

    def fill(self) -> None:
        chance = random.Random(11)
        first_ms = self.start_ms // 60_000 * 60_000
        self.expected: dict[int, Counter[str]] = {}
        self.visitors: dict[int, set[str]] = {}
        rows: dict[str, list[tuple[str, dict[str, Any]]]] = {topic: [] for topic in SOURCES}
        for number in range(2400):
            ts = first_ms + chance.randrange(8 * 60_000)
            row: dict[str, Any] = {"event_id": f"e{number}", "ts": ts}
            numbers = self.expected.setdefault(ts // 60_000, Counter())
            topic = chance.choices(SOURCES, (8, 1, 1))[0]
            if topic == DWD_PAGE:
                row["mid"] = key = f"m{chance.randrange(200)}"
                numbers["page_views"] += 1
                self.visitors.setdefault(ts // 60_000, set()).add(key)
            else:
                key, amount = f"row:{number}", chance.randrange(1, 10_000)
                row |= {"op": "insert", "payment_amount": amount / 100, "payment_status": "succeeded"}
                numbers["orders" if topic == DWD_ORDER else "revenue"] += 1 if topic == DWD_ORDER else amount
            rows[topic].append((key, row))
        for topic, content in rows.items():
            self.broker.create_topic(topic, 2)
            put(self.broker.bootstrap_servers, topic, content)

    def check(self, spark: Any) -> None:
        """Checks that the newest version of each minute is correct, and that topic and table have each version once."""
        columns = ("minute", "version", "page_views", "visitors", "orders", "revenue")
        topic = spark.createDataFrame(
            [(json.dumps(value),) for value in values(self.broker.bootstrap_servers, TRAFFIC)], "value string"
        )
        parsed = topic.selectExpr(f"from_json(value, '{ROW}') as row").select("row.*")
        table = spark.read.parquet(str(self.warehouse / TRAFFIC))
        for written in (parsed, table):
            found = {int(row["minute"].replace(tzinfo=UTC).timestamp()) // 60: row for row in latest(written).collect()}
            numbers = {
                minute: Counter(page_views=row.page_views, orders=row.orders, revenue=int(row.revenue * 100))
                for minute, row in found.items()
            }
            assert numbers == self.expected
            assert {minute: row.visitors for minute, row in found.items()} == {
                minute: len(who) for minute, who in self.visitors.items()
            }
        in_topic, in_table = (sorted(tuple(row) for row in each.select(*columns).collect()) for each in (parsed, table))
        assert in_topic == in_table
        assert len({row[:2] for row in in_topic}) == len(in_topic) > len(self.expected)


def table_is_being_written(lab: Lab) -> Callable[[], bool]:
    """Waits until the topic has a batch whose files are staged, or being moved into the table."""

    def staged() -> set[Path]:
        return set((lab.warehouse / TRAFFIC / "_headrace").glob("*/*"))

    before = staged()
    return lambda: bool(staged() - before)


def test_dws_traffic_survives_driver_kills(tmp_path: Path, spark: Any) -> None:
    """Kills between the writes to topic and table. Each run has another number of cores than the killed one."""
    with EmbeddedBroker() as broker:
        lab = TrafficLab(broker, tmp_path)
        with lab.run_until(table_is_being_written, "local[1]"):
            pass
        if ALL_POINTS:
            with lab.run_until(hold_up(ApiKey.END_TXN, "after"), "local[3]"):
                pass
            with lab.run_until(hold_up(ApiKey.END_TXN, "before"), "local[4]"):
                pass
        lab.run_to_the_end()
        lab.check(spark)


def test_ods_dwd_survives_task_and_broker_kills(lab: Lab, spark: Any) -> None:
    """Kills a task while it writes, the broker while a task commits, and a task again. The driver survives."""
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
