"""The audit of a user's pipeline: finds planted violations, and nothing else."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.pipelines.audit import KEY, Audit, AuditReport, audit_of, audit_pipeline, reconcile
from headrace.pipelines.columns import binary_column, integer_column
from headrace.pipelines.pipeline import Flow, Pipeline, PipelineError, Table, Topic
from headrace.pipelines.topic_reader import Records

Row = str | bytes | None


def records(topic: str, values: list[Row], keys: list[Row] | None = None, partition: int = 0) -> Iterator[Records]:
    keys = keys or [None] * len(values)
    offsets = integer_column(range(10, 10 + len(values)))
    yield Records(topic, partition, binary_column(keys), binary_column(values), offsets, offsets)


def events(*ids: Any, **fields: Any) -> list[Row]:
    return [json.dumps({"id": each, **fields}) for each in ids]


def letters(*offsets: int, topic: str = "in") -> list[Row]:
    return [json.dumps({"reason": "?", "topic": topic, "partition": 0, "offset": offset}) for offset in offsets]


def judge(
    audit: Audit, inputs: list[Row], outputs: list[Row], dead: Sequence[Row] = (), several: bool = False
) -> AuditReport:
    rows = {"out": (records("out", outputs), "id", several)}
    return reconcile(audit, records("in", inputs), rows, records("dead", list(dead)))


def test_passes_when_every_record_is_accounted_for() -> None:
    audit = Audit("id", drops=lambda event: event["id"] == "skip")
    report = judge(audit, [*events("a", "b", "skip"), "broken", None], events("b", "a"), letters(13, 14))
    assert report.ok
    assert (report.records, report.dead_letters, report.dropped, report.missing) == (5, 2, 1, 0)
    assert report.rows == {"out": 2}
    assert report.lines() == [
        "5 input records: 2 in outputs, 2 dead letters, 1 dropped, 0 missing",
        "out: 2 rows",
        "",
        "audit passed: nothing missing, unexpected or duplicate",
    ]


def test_drops_is_not_asked_about_dead_letters() -> None:
    audit = Audit("id", drops=lambda event: event["n"] > 100)
    inputs = [*events("a", n=1), *events("b", n=200), *events("c", n="many")]
    report = judge(audit, inputs, events("a"), letters(12))
    assert report.ok
    assert (report.dead_letters, report.dropped) == (1, 1)
    with pytest.raises(PipelineError, match="drops of the audit failed for in, partition 0, offset 12: TypeError"):
        judge(audit, inputs, events("a"))


def test_finds_missing_records() -> None:
    report = judge(Audit("id"), [*events("a", "b"), "{}", "broken"], events("a"))
    assert report.missing == 3
    assert not report.ok
    assert "missing: in, partition 0, offset 11, id b" in report.examples
    assert "missing: in, partition 0, offset 13, id None" in report.examples
    assert report.lines()[-1] == "audit FAILED: 3 missing"


def test_finds_unexpected_rows() -> None:
    audit = Audit("id", drops=lambda event: event["id"] == "skip")
    report = judge(audit, events("a", "skip", "bad"), [*events("a", "x", "skip", "bad"), "?"], letters(12, 77))
    assert (report.unexpected, report.missing, report.duplicates) == (5, 0, 0)
    assert "out: 1 unexpected of id x" in report.examples
    assert "unexpected dead letter of in, partition 0, offset 77" in report.examples


@pytest.mark.parametrize(
    ("ids", "rows", "deduplicates", "several", "duplicates"),
    [
        ("ab", "abb", False, False, 1),
        ("abb", "abb", False, False, 0),
        ("abb", "abb", True, False, 1),
        ("abb", "ab", True, False, 0),
        ("ab", "aabbb", False, True, 0),
    ],
)
def test_finds_duplicates(ids: str, rows: str, deduplicates: bool, several: bool, duplicates: int) -> None:
    report = judge(Audit("id", deduplicates=deduplicates), events(*ids), events(*rows), several=several)
    assert report.duplicates == duplicates
    assert report.missing == report.unexpected == 0


def test_finds_duplicate_dead_letters() -> None:
    report = judge(Audit("id"), ["?"], [], letters(10, 10))
    assert (report.duplicates, report.dead_letters) == (1, 1)


def test_ids_in_keys_and_nested_fields() -> None:
    nested: list[Row] = [json.dumps({"order": {"id": each}}) for each in (1, 2)]
    report = reconcile(
        Audit(KEY),
        records("in", ["x", "y"], ["1", "2"]),
        {"out": (records("out", nested), "order.id", False)},
        iter(()),
    )
    assert report.ok


def pipeline(**outputs: Any) -> Pipeline:
    flow = Flow("only", {"in": Topic("in")}, split=lambda frame, _: {"out": frame})
    return Pipeline.of("mine", [flow], outputs or {"out": Topic("out")})


def test_declaration_is_the_pipelines_own_or_in_its_file() -> None:
    declared = Audit("id")
    assert audit_of(pipeline(), SimpleNamespace(audit=declared)) is declared
    assert audit_of(replace(pipeline(), audit=declared), SimpleNamespace()) is declared
    with pytest.raises(PipelineError, match="does not declare where its events have their ids"):
        audit_of(pipeline(), SimpleNamespace())


@pytest.mark.parametrize(
    ("definition", "declared", "message"),
    [
        (pipeline(), Audit("id", {"other": "id"}), "unknown output 'other': expected out"),
        (pipeline(out=Table("t", "time")), Audit("id"), "no output topic with a fixed name"),
        (
            Pipeline.of("p", [Flow("f", {"in": Topic(pattern="i")}, split=lambda *_: {})], {"out": Topic("o")}),
            Audit("id"),
            "has a pattern",
        ),
    ],
)  # fmt: skip
def test_rejects_what_cannot_be_audited(definition: Pipeline, declared: Audit, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        audit_pipeline(definition, declared, "127.0.0.1:1")
