"""`ods-dwd` between topics, with the audit."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.shop.frames import TS, run_to_the_end
from tests.support.spark.topic_rows import put, records, values

from headrace.pipelines import RunSettings
from headrace.shop.audit import audit
from headrace.shop.datagen.stream import EventStream, StreamSettings
from headrace.shop.datagen.visits import DB, LOG
from headrace.shop.ods_dwd import ods_dwd
from headrace.testing import EmbeddedBroker

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def shop() -> Iterator[EmbeddedBroker]:
    """A separate broker, because the names of the shop's topics are fixed."""
    with EmbeddedBroker() as broker:
        for topic in ("ods_log", "ods_db", *(str(topic.name) for topic in ods_dwd.topics)):
            broker.create_topic(topic, 2)
        yield broker


def test_writes_topics_that_pass_the_audit(spark: Any, shop: EmbeddedBroker, tmp_path: Path) -> None:
    servers = shop.bootstrap_servers
    stream = EventStream(StreamSettings(events=800, rate=100.0, broken=0.05, duplicates=0.1, devices=40), TS)
    how = RunSettings(servers, str(tmp_path / "checkpoint"), available_now=True, max_rows_per_batch=300)
    for _ in range(2):
        block = stream.take(400)
        for topic, number in (("ods_log", LOG), ("ods_db", DB)):
            put_raw(servers, topic, list(zip(block.keys[number], block.values[number], strict=True)))
        run_to_the_end(ods_dwd, spark, how)
    assert stream.generated.duplicates > 20
    report = audit(servers)
    assert report.ok, "\n".join(report.lines())
    assert sum(each.records for each in report.inputs) == 800
    assert all(each.rows for each in report.outputs if each.topic in ("dwd_page", "dwd_display", "dwd_cart"))
    assert sum(each.duplicates for each in report.inputs) >= stream.generated.duplicates // 2

    forget_last_commit(tmp_path / "checkpoint" / "ods-dwd" / "events")
    run_to_the_end(ods_dwd, spark, how)
    assert audit(servers).ok, "a replayed batch adds nothing"
    letters = values(servers, "ods_dwd_dead_letters")
    assert sum(stream.generated.broken.values()) == len(letters)
    assert {"reason", "topic", "partition", "offset", "timestamp"} <= set(letters[0])
    by_key: dict[bytes, list[int]] = {}
    for record in records(servers, "dwd_page"):
        by_key.setdefault(record.key, []).append(json.loads(record.value)["src"]["o"])
    assert all(offsets == sorted(offsets) for offsets in by_key.values())


def put_raw(servers: str, topic: str, rows: list[tuple[str, Any]]) -> None:
    put(servers, topic, [(key, value.encode() if isinstance(value, str) else value or b"null") for key, value in rows])


def forget_last_commit(flow: Path) -> None:
    """Removes the commit of the last batch, as if the driver had died before it."""
    commits = sorted((flow / "query" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    commits[-1].unlink()
    (commits[-1].parent / f".{commits[-1].name}.crc").unlink(missing_ok=True)
