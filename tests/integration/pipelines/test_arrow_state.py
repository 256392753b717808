"""Arrow flows with state: exactly once and the same state, however tasks, runs and the driver end."""

import os
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.broker.process import eventually
from tests.support.spark.cluster import python_workers
from tests.support.spark.seen_state import SeenKeys
from tests.support.spark.topic_rows import put, records

from headrace.admin import Admin
from headrace.pipelines import ArrowFlow, Pipeline, PipelineError, Runner, RunSettings, Table, Task, Topic
from headrace.pipelines.tables import TableBatch
from headrace.protocol import ApiKey
from headrace.testing import EmbeddedBroker

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
DEADLINE = 120


@pytest.fixture
def settings(broker: EmbeddedBroker, tmp_path: Path) -> RunSettings:
    return RunSettings(
        broker.bootstrap_servers, str(tmp_path / "checkpoint"), warehouse=str(tmp_path / "tables"), available_now=True
    )


def first_of_each_key(rows: pa.RecordBatch, task: Task) -> Any:
    """Keeps the first record of each key, and counts the others."""
    is_new = [task.state.add(key.as_py().decode()) for key in rows["key"]]
    task.figures["repeated"] = task.figures.get("repeated", 0) + is_new.count(False)
    return {"out": rows.filter(pa.array(is_new, pa.bool_())).select(["key", "value", "timestamp"])}


def distinct(name: str, transform: Any = first_of_each_key) -> Pipeline:
    flow = ArrowFlow("distinct", {"rows": Topic(f"{name}-in")}, transform, lambda task: SeenKeys())
    return Pipeline.of(name, [flow], {"out": [Topic(f"{name}-out"), Table(name, time="timestamp")]})


def state_files(settings: RunSettings) -> list[Path]:
    return sorted(Path(settings.checkpoint).glob("*/*/state/*/*"))


def keys(servers: str, topic: str) -> list[str]:
    return sorted(record.key.decode() for record in records(servers, topic))


def table_keys(spark: Any, settings: RunSettings, name: str) -> list[str]:
    return sorted(bytes(row.key).decode() for row in spark.read.parquet(f"{settings.warehouse}/{name}").collect())


def send(servers: str, topic: str, numbers: Any) -> None:
    put(servers, topic, [(f"k{number}", f"{number}".encode()) for number in numbers])


def test_state_continues_over_batches_and_runs(spark: Any, broker: EmbeddedBroker, settings: RunSettings) -> None:
    servers = broker.bootstrap_servers
    broker.create_topic("sruns-in", 2)
    expected: set[int] = set()
    repeated = 0
    for run in range(3):
        numbers = [*range(run * 10, run * 10 + 30), *range(run * 10, run * 10 + 5)]
        send(servers, "sruns-in", numbers)
        summary = Runner(distinct("sruns"), spark, replace(settings, max_rows_per_batch=12)).run()
        new = set(numbers) - expected
        repeated = len(numbers) - len(new)
        expected |= new
        assert summary.outputs == {"sruns-out": len(new), "sruns": len(new)}
        assert summary.flows["distinct"].figures == {"repeated": repeated}
    assert keys(servers, "sruns-out") == sorted(f"k{number}" for number in expected)
    assert table_keys(spark, settings, "sruns") == sorted(f"k{number}" for number in expected)
    assert state_files(settings)


def test_added_partitions_keep_the_state(
    spark: Any, broker: EmbeddedBroker, settings: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys move to other partitions: every partition knows the keys of all partitions, also after a replay of the first
    batch with the new partitions."""
    servers = broker.bootstrap_servers
    broker.create_topic("smore-in", 2)
    send(servers, "smore-in", range(40))
    Runner(distinct("smore"), spark, settings).run()
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_partitions({"smore-in": 5})
    send(servers, "smore-in", [0, 1, 2, 40])
    with monkeypatch.context() as patch:
        patch.setattr(TableBatch, "commit", crash)
        with pytest.raises(PipelineError, match="the disk is gone"):
            Runner(distinct("smore"), spark, settings).run()
    kill_workers()
    summary = Runner(distinct("smore"), spark, settings).run()
    assert summary.flows["distinct"].figures == {"repeated": 3}
    assert len(list(Path(settings.checkpoint).glob("*/*/state/*/snapshot-*"))) == 5
    for _ in range(2):
        send(servers, "smore-in", range(60))
        Runner(distinct("smore"), spark, settings).run()
    assert keys(servers, "smore-out") == sorted(f"k{number}" for number in range(60))


def test_damaged_state_file_ends_the_run(spark: Any, broker: EmbeddedBroker, settings: RunSettings) -> None:
    servers = broker.bootstrap_servers
    broker.create_topic("sdamage-in", 1)
    send(servers, "sdamage-in", range(5))
    Runner(distinct("sdamage"), spark, settings).run()
    (path,) = state_files(settings)
    content = path.read_bytes()
    path.write_bytes(content[:-3])
    send(servers, "sdamage-in", range(6))
    kill_workers()  # they have the state in memory
    with pytest.raises(PipelineError, match=f"flow distinct failed: state file {path} is damaged"):
        Runner(distinct("sdamage"), spark, settings).run()
    path.write_bytes(content)
    Runner(distinct("sdamage"), spark, settings).run()
    assert keys(servers, "sdamage-out") == sorted(f"k{number}" for number in range(6))


def crash(*_: object) -> None:
    raise OSError("the disk is gone")


def kill_workers() -> None:
    for pid in python_workers(os.getpid()):
        os.kill(pid, signal.SIGKILL)


def test_worker_that_kills_itself_once(
    spark: Any, broker: EmbeddedBroker, settings: RunSettings, tmp_path: Path
) -> None:
    """The second attempt runs in another process, from the state before the batch."""
    servers = broker.bootstrap_servers
    broker.create_topic("skill-in", 2)
    send(servers, "skill-in", range(30))
    Runner(distinct("skill"), spark, settings).run()
    flag = tmp_path / "killed"

    def kill_once(rows: pa.RecordBatch, task: Task) -> Any:
        returned = first_of_each_key(rows, task)
        if task.partition == 0 and not flag.exists():
            flag.write_text("")
            os.kill(os.getpid(), signal.SIGKILL)
        return returned

    send(servers, "skill-in", range(20, 50))
    Runner(distinct("skill", kill_once), spark, settings).run()
    assert flag.exists()
    assert keys(servers, "skill-out") == sorted(f"k{number}" for number in range(50))
    assert table_keys(spark, settings, "skill") == sorted(f"k{number}" for number in range(50))


@pytest.mark.parametrize("when", ["before", "after"])
def test_worker_is_killed_while_it_commits(
    spark: Any, broker: EmbeddedBroker, settings: RunSettings, when: str
) -> None:
    """Kills the workers when the commit is not processed yet, or is processed and the worker does not know."""
    servers, name = broker.bootstrap_servers, f"scommit{when}"
    broker.create_topic(f"{name}-in", 2)
    send(servers, f"{name}-in", range(30))
    faults = broker.faults
    fault = (
        faults.delay(ApiKey.END_TXN, 600_000, times=1)
        if when == "before"
        else faults.drop_reply(ApiKey.END_TXN, times=1)
    )
    runner = Runner(distinct(name), spark, settings)
    thread = threading.Thread(target=runner.run)
    thread.start()
    eventually(lambda: fault.hits > 0, "a task commits", DEADLINE)
    kill_workers()
    faults.clear()
    thread.join(DEADLINE)
    assert not thread.is_alive()
    send(servers, f"{name}-in", range(10, 40))
    Runner(distinct(name), spark, settings).run()
    assert keys(servers, f"{name}-out") == sorted(f"k{number}" for number in range(40))
    assert table_keys(spark, settings, name) == sorted(f"k{number}" for number in range(40))


def test_replayed_batch_writes_nothing_twice(
    spark: Any, broker: EmbeddedBroker, settings: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All tasks have committed when the driver fails. The replay runs in the same and in other processes."""
    servers = broker.bootstrap_servers
    broker.create_topic("sreplay-in", 2)

    for attempt, numbers in enumerate((range(30), range(10, 45))):
        send(servers, "sreplay-in", numbers)
        with monkeypatch.context() as patch:
            patch.setattr(TableBatch, "commit", crash)
            with pytest.raises(PipelineError, match="flow distinct failed: the disk is gone"):
                Runner(distinct("sreplay"), spark, settings).run()
        if attempt:
            kill_workers()
        before = {path: path.read_bytes() for path in state_files(settings)}
        Runner(distinct("sreplay"), spark, settings).run()
        assert {path: path.read_bytes() for path in state_files(settings)} == before
        expected = sorted(f"k{number}" for number in range(numbers.stop))
        assert keys(servers, "sreplay-out") == expected
        assert table_keys(spark, settings, "sreplay") == expected


def test_replay_with_other_rows_ends_the_run(
    spark: Any, broker: EmbeddedBroker, settings: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("sother-in", 1)
    send(broker.bootstrap_servers, "sother-in", range(5))

    with monkeypatch.context() as patch:
        patch.setattr(TableBatch, "commit", crash)
        with pytest.raises(PipelineError):
            Runner(distinct("sother"), spark, settings).run()

    def fewer(rows: pa.RecordBatch, task: Task) -> Any:
        return first_of_each_key(rows.slice(1), task)

    with pytest.raises(PipelineError, match="batch 0 was written before with 5 rows"):
        Runner(distinct("sother", fewer), spark, settings).run()
