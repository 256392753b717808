"""The audit finds planted violations: lost, doubled, unexpected and disordered rows, missing dead letters. Nothing
else."""

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from tests.support.shop import reference as shop_reference
from tests.support.shop.reference import Record, Topics

import headrace
from headrace.cli.main import main
from headrace.pipelines.columns import binary_column, integer_column
from headrace.pipelines.topic_reader import Records
from headrace.shop.audit.checks import Place, Reconciliation, UnclearRecord
from headrace.shop.audit.report import DeadLetters, Output, Report
from headrace.shop.audit.verdicts import Verdict
from headrace.shop.datagen import EventStream, StreamSettings
from headrace.shop.routes import ROUTES
from headrace.testing import EmbeddedBroker

START_MS = 1_790_000_000_000
LETTERS = "ods_dwd_dead_letters"
DWD = (
    "dwd_start",
    "dwd_page",
    "dwd_display",
    "dwd_action",
    "dwd_error",
    "dwd_order",
    "dwd_payment",
    "dwd_refund",
    "dwd_cart",
)


@pytest.fixture(scope="module")
def inputs() -> list[Record]:
    """The events of a small shop, with all kinds of faults."""
    chosen = StreamSettings(events=1200, span_ms=60_000, devices=10, broken=0.06, late=0.05, duplicates=0.08)
    topics = Topics()
    stream = EventStream(chosen, START_MS)
    for number, block in enumerate(stream.blocks(100)):
        for name, keys, values in zip(("ods_log", "ods_db"), block.keys, block.values, strict=True):
            for key, value in zip(keys, values, strict=True):
                topics.add(name, key, value, START_MS + number)
    assert stream.generated.duplicates > 20
    return topics.of("ods_log", "ods_db")


def chunks(records: Sequence[Record]) -> Iterator[Records]:
    """Yields records as they are read from topics: partition by partition, in the order of offsets."""
    places = sorted(records, key=lambda record: (record.topic, record.partition, record.offset))
    for (topic, partition), group in groupby(places, key=lambda record: (record.topic, record.partition)):
        chosen = list(group)
        yield Records(
            topic,
            partition,
            binary_column([record.key for record in chosen]),
            binary_column([record.value for record in chosen]),
            integer_column(record.offset for record in chosen),
            integer_column(record.timestamp_ms * 1000 for record in chosen).view(pa.timestamp("us", "UTC")),
        )


def _bytes(text: str | bytes | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text


def no_spark(unclear: Sequence[UnclearRecord]) -> dict[Place, Verdict]:
    raise AssertionError(f"the judge must not need Spark for {unclear}")


def judge(inputs: list[Record], written: dict[str, list[Record]]) -> Report:
    reconciliation = Reconciliation(ROUTES, no_spark)
    for records in chunks(inputs):
        reconciliation.add_inputs(records)
    for records in chunks([record for topic in written if topic != LETTERS for record in written[topic]]):
        reconciliation.add_outputs(records)
    for records in chunks(written.get(LETTERS, [])):
        reconciliation.add_dead_letters(records)
    return reconciliation.report()


def test_passes_correct_outputs(inputs: list[Record]) -> None:
    written = shop_reference.run(inputs, later_ms=250)
    report = judge(inputs, written.records)
    assert report.ok, "\n".join(report.lines())
    assert [output.topic for output in report.outputs] == list(DWD)
    for output in report.outputs:
        assert output.rows == output.expected == len(written.of(output.topic))
    log, db = report.inputs
    assert (log.topic, db.topic) == ("ods_log", "ods_db")
    for each in (log, db):
        assert each.records == each.sound + each.duplicates + each.unrouted + each.broken
        assert each.records == sum(record.topic == each.topic for record in inputs)
    assert log.duplicates > 10
    assert log.broken > 10
    assert sum(each.letters for each in report.dead_letters) == log.broken + db.broken == len(written.of(LETTERS))
    assert report.latency is not None
    assert report.latency.p50_ms == report.latency.max_ms == 250
    assert not report.examples


Written = dict[str, list[Record]]


def drop(written: Written, topic: str, row: int) -> None:
    del written[topic][row]


def double(written: Written, topic: str, row: int) -> None:
    """Appends the row again to its partition. This is no disorder if it is the last row of its key."""
    record = written[topic][row]
    last = max(each.offset for each in written[topic] if each.partition == record.partition)
    written[topic].append(record.moved(offset=last + 1))


def swap(written: Written, topic: str) -> None:
    """Swaps two adjacent rows of one key that belong to different events."""
    rows = written[topic]
    for one, row in enumerate(rows):
        after = [other for other in range(one + 1, len(rows)) if rows[other].key == row.key]
        if after and event_id(rows[after[0]]) != event_id(row):
            other = after[0]
            rows[one], rows[other] = row.moved(offset=rows[other].offset), rows[other].moved(offset=row.offset)
            return
    raise AssertionError(f"no two events of one key in {topic}")


def event_id(record: Record) -> str:
    found: str = json.loads(record.value or "")["event_id"]
    return found


def change(written: Written, topic: str, row: int, **changes: Any) -> None:
    record = written[topic][row]
    written[topic][row] = record.moved(value=json.dumps({**json.loads(record.value or ""), **changes}))


def move_to_another_partition(written: Written, topic: str) -> None:
    """Moves the last row of a key that has several rows."""
    rows = written[topic]
    last = max(index for index, row in enumerate(rows) if any(other.key == row.key for other in rows[:index]))
    rows[last] = rows[last].moved(partition=7, offset=0)


def test_finds_planted_violations(inputs: list[Record]) -> None:
    written = {topic: list(records) for topic, records in shop_reference.run(inputs).records.items()}
    swap(written, "dwd_start")
    drop(written, "dwd_page", 3)
    double(written, "dwd_page", -1)
    made_of = json.loads(written["dwd_page"][7].value or "")["src"]
    change(written, "dwd_page", 7, src={"p": made_of["p"], "o": made_of["o"] - 1})  # another source record
    drop(written, "dwd_display", 3)
    drop(written, "dwd_display", 30)
    change(written, "dwd_display", 0, seq=500)
    double(written, "dwd_action", -1)
    change(written, "dwd_action", 0, event_id="nobody")
    move_to_another_partition(written, "dwd_order")
    written["dwd_cart"][0] = written["dwd_cart"][0].moved(key="cart_info:another")
    sound = {"reason": "?", "topic": "ods_log", "partition": made_of["p"], "offset": made_of["o"]}
    drop(written, LETTERS, 0)
    double(written, LETTERS, -1)
    written[LETTERS].append(Record(LETTERS, 0, 999, None, json.dumps(sound)))

    report = judge(inputs, written)

    assert not report.ok
    found = {output.topic: wrong(output) for output in report.outputs}
    assert found == {
        "dwd_start": {"disordered": 1},
        "dwd_page": {"lost": 1, "doubled": 1, "misplaced": 1},
        "dwd_display": {"lost": 3, "unexpected": 1, **disorder_of(found["dwd_display"])},
        "dwd_action": {"lost": 1, "doubled": 1, "unexpected": 1},
        "dwd_error": {},
        "dwd_order": {"disordered": 1},
        "dwd_payment": {},
        "dwd_refund": {},
        "dwd_cart": {"misplaced": 1},
    }
    letters = [wrong(each) for each in report.dead_letters]
    total = {name: sum(each.get(name, 0) for each in letters) for name in ("lost", "doubled", "unexpected")}
    assert total == {"lost": 1, "doubled": 1, "unexpected": 1}
    assert report.verdict.startswith("FAILED: 5 rows lost; 1 dead letter lost; 2 rows written more than once; ")
    for example in (
        "dwd_action: event nobody has 1 of 0 rows",
        "is out of order",
        "dead letters: ods_log",
        "has 2 of 1",
    ):
        assert any(example in each for each in report.examples), (example, report.examples)


def wrong(figures: Output | DeadLetters) -> dict[str, int]:
    """Returns the violations of a report."""
    return {name: count for name, count in list(vars(figures).items())[3:] if count}


def disorder_of(found: dict[str, int]) -> dict[str, int]:
    """The changed row is out of order only if its event has more displays, which depends on the events."""
    return {name: count for name, count in found.items() if name == "disordered"}


def test_reports_all_rows_lost_without_outputs(inputs: list[Record]) -> None:
    report = judge(inputs, {})
    assert not report.ok
    assert all(output.lost == output.expected for output in report.outputs)
    assert sum(each.lost for each in report.dead_letters) == sum(each.broken for each in report.inputs)
    assert report.latency is None


def send(broker: EmbeddedBroker, records: Sequence[Record]) -> None:
    """Writes records to their partitions, in order."""
    with headrace.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for record in sorted(records, key=lambda each: each.offset):
            key, value = _bytes(record.key), _bytes(record.value)
            producer.send(record.topic, value, key=key, partition=record.partition, timestamp_ms=record.timestamp_ms)


def test_command(inputs: list[Record]) -> None:
    written = shop_reference.run(inputs)
    kept = {"log.retention.ms": -1}  # the events are older than the default retention
    topics = dict.fromkeys((*DWD, LETTERS, "ods_log", "ods_db"), 2)
    with EmbeddedBroker(kept, topics=topics) as broker:
        rows = written.of(*DWD, LETTERS)
        last = max((row for row in rows if row.topic == "dwd_page" and not row.partition), key=lambda row: row.offset)
        send(broker, [*inputs, *(row for row in rows if row is not last)])
        options = ["pipeline", "audit", "--bootstrap-server", broker.bootstrap_servers]
        ran = CliRunner().invoke(main, options)
        assert ran.exit_code == 1, ran.output
        assert "audit FAILED: 1 row lost" in ran.output
        assert f"dwd_page: event {event_id(last)} has 0 of 1 rows, 1 lost" in ran.output


def test_command_without_topics() -> None:
    with EmbeddedBroker(properties={"auto.create.topics.enable": False}) as broker:
        ran = CliRunner().invoke(main, ["pipeline", "audit", "--bootstrap-server", broker.bootstrap_servers])
    assert ran.exit_code == 1
    assert "ods_log" in ran.output
    assert ran.output.startswith("headrace: the audit failed: ")
    assert ran.output.count("\n") == 1
