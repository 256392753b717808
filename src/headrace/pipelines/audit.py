"""Audits the output of a user's pipeline by event id: `headrace pipeline audit FILE`. Without Spark.

A pipeline declares where its events have their ids:

    audit = Audit(id="event_id", outputs={"orders": "order.event_id"})

The audit reads all topics and reconciles them:

    every input record    has its id in at least one output, or is a dead letter, or is dropped (`drops`)
    every output row      has the id of an input record, and not more rows than that id has records
    every dead letter     belongs to an input record, and is the only one of it

Owner of the state: `Reconciliation`, filled by one thread. It keeps all ids in memory.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.pipelines.pipeline import DEAD_LETTERS, Pipeline, PipelineError, Topic

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.pipelines.topic_reader import Records

__all__ = ["KEY", "Audit", "AuditReport", "audit_of", "audit_pipeline", "reconcile"]

KEY = "$key"
"""Stands for the record's key, in place of the path of a JSON field."""
_EXAMPLES = 5
_OFFSET_BITS = 44


@dataclass(frozen=True)
class Audit:
    """Where the events of a pipeline have their ids. A path is the name of a JSON field, with dots between the names of
    nested fields, or `KEY`."""

    id: str
    """The path of the id in input records."""
    outputs: Mapping[str, str] = field(default_factory=dict)
    """The path of the id in the rows of each output. Outputs that are not named here are not audited. Without any, all
    outputs have the id at the same path as the input."""
    deduplicates: bool = False
    """The pipeline removes duplicates: an id has one row per output, however many records it has."""
    several_rows: Sequence[str] = ()
    """Outputs that may have several rows per event."""
    drops: Callable[[Any], bool] | None = None
    """Returns True for a record that the pipeline leaves out on purpose. Receives its value, decoded from JSON."""


@dataclass(frozen=True)
class AuditReport:
    """The result of an audit. `records` = `found` + `dead_letters` + `dropped` + `missing`."""

    records: int
    dropped: int
    dead_letters: int
    missing: int
    """Records that are in no output, and are neither dead letters nor dropped."""
    rows: Mapping[str, int]
    """Rows by output topic."""
    unexpected: int
    """Rows without an input record, and dead letters of records that are not in the input."""
    duplicates: int
    """Rows and dead letters that exceed the number of their input records."""
    examples: Sequence[str] = ()

    @property
    def ok(self) -> bool:
        return not (self.missing or self.unexpected or self.duplicates)

    def lines(self) -> list[str]:
        found = self.records - self.dropped - self.dead_letters - self.missing
        lines = [
            f"{self.records:,} input records: {found:,} in outputs, {self.dead_letters:,} dead letters, "
            f"{self.dropped:,} dropped, {self.missing:,} missing",
            *(f"{topic}: {rows:,} rows" for topic, rows in self.rows.items()),
        ]
        if self.examples:
            lines += ["", "examples", *(f"  {example}" for example in self.examples)]
        wrong = [
            f"{count:,} {what}"
            for count, what in (
                (self.missing, "missing"),
                (self.unexpected, "unexpected"),
                (self.duplicates, "duplicate"),
            )
            if count
        ]
        verdict = f"FAILED: {', '.join(wrong)}" if wrong else "passed: nothing missing, unexpected or duplicate"
        return [*lines, "", f"audit {verdict}"]


def audit_of(pipeline: Pipeline, module: object) -> Audit:
    """Returns the declaration of a pipeline: its own, or the variable `audit` of the module that defines it."""
    declared = pipeline.audit or getattr(module, "audit", None)
    if not isinstance(declared, Audit):
        raise PipelineError(
            f"pipeline {pipeline.name} does not declare where its events have their ids: add, for example, "
            'audit = Audit(id="event_id") to its file (from headrace.pipelines.audit import Audit)'
        )
    return declared


def audit_pipeline(
    pipeline: Pipeline, declared: Audit, bootstrap_servers: str, client: Mapping[str, str] | None = None
) -> AuditReport:
    """Reads the topics of a pipeline and reconciles them. `client` are additional client configs."""
    from headrace.pipelines.topic_reader import read_topics

    inputs = _input_topics(pipeline)
    outputs = _output_topics(pipeline, declared)
    letters = [
        str(place.name) for place in pipeline.outputs.get(DEAD_LETTERS, ()) if isinstance(place, Topic) and place.name
    ]

    def read(topics: Sequence[str]) -> "Iterator[Records]":
        return read_topics(bootstrap_servers, topics, client)

    return reconcile(
        declared,
        read(inputs),
        {topic: (read([topic]), path, several) for topic, (path, several) in outputs.items()},
        read(letters),
    )


def _input_topics(pipeline: Pipeline) -> list[str]:
    topics: dict[str, None] = {}
    for flow in pipeline.flows:
        for source, topic in flow.sources.items():
            if topic.name is None:
                raise PipelineError(f"source {source!r} of pipeline {pipeline.name} has a pattern: cannot audit it")
            topics.update(dict.fromkeys(name.strip() for name in topic.name.split(",")))
    return list(topics)


def _output_topics(pipeline: Pipeline, declared: Audit) -> dict[str, tuple[str, bool]]:
    """Returns the path of the id, and whether several rows may have it, by output topic."""
    paths = dict(declared.outputs) or {name: declared.id for name in pipeline.outputs if name != DEAD_LETTERS}
    for name in (*paths, *declared.several_rows):
        if name not in pipeline.outputs:
            known = ", ".join(name for name in pipeline.outputs if name != DEAD_LETTERS)
            raise PipelineError(
                f"the audit of pipeline {pipeline.name} names an unknown output {name!r}: expected {known}"
            )
    topics = {
        place.name: (path, name in declared.several_rows)
        for name, path in paths.items()
        for place in pipeline.outputs[name]
        if isinstance(place, Topic) and place.name is not None
    }
    if not topics:
        raise PipelineError(f"pipeline {pipeline.name} has no output topic with a fixed name: nothing to audit")
    return topics


def reconcile(
    declared: Audit,
    inputs: "Iterator[Records]",
    outputs: "Mapping[str, tuple[Iterator[Records], str, bool]]",
    dead_letters: "Iterator[Records]",
) -> AuditReport:
    """Compares records. `outputs` has, by topic, the rows, the path of their id, and whether an id may have several."""
    reconciliation = _Reconciliation(declared)
    for records in dead_letters:
        reconciliation.add_dead_letters(records)
    for records in inputs:
        reconciliation.add_inputs(records)
    for topic, (rows, path, _) in outputs.items():
        for records in rows:
            reconciliation.add_rows(topic, records, path)
    return reconciliation.report({topic: several for topic, (_, _, several) in outputs.items()})


class _Reconciliation:
    """The ids of all records and rows, and the places of dead letters."""

    def __init__(self, declared: Audit) -> None:
        self._declared = declared
        self._partitions: dict[tuple[str | None, int], int] = {}
        self._ids: list[pa.Array] = []
        self._places: list[pa.Array] = []
        self._dropped: list[pa.Array] = []
        self._rows: dict[str, list[pa.Array]] = {}
        self._letters: Counter[int] = Counter()

    def _number(self, topic: str | None, partition: int) -> int:
        """Returns a number for a partition. With an offset it makes the number of a record's place."""
        return self._partitions.setdefault((topic, partition), len(self._partitions)) << _OFFSET_BITS

    def _place_text(self, place: int) -> str:
        topic, partition = list(self._partitions)[place >> _OFFSET_BITS]
        return f"{topic}, partition {partition}, offset {place & ((1 << _OFFSET_BITS) - 1)}"

    def add_inputs(self, records: "Records") -> None:
        """Adds input records. The dead letters must have been added before: `drops` is not asked about invalid
        records."""
        from headrace.pipelines.columns import integer_column

        first = self._number(records.topic, records.partition)
        places = [first | offset for offset in records.offsets.to_pylist()]
        self._ids.append(_ids(records, self._declared.id))
        self._places.append(integer_column(places))
        drops = self._declared.drops
        values = records.values.to_pylist() if drops is not None else [None] * len(records.values)
        self._dropped.append(
            integer_column(
                drops is not None and place not in self._letters and self._is_dropped(drops, place, value)
                for place, value in zip(places, values, strict=True)
            )
        )

    def _is_dropped(self, drops: Callable[[Any], bool], place: int, value: bytes | None) -> bool:
        try:
            decoded = json.loads(value or b"")
        except ValueError:
            return False  # not JSON: the pipeline cannot have read it either
        try:
            return bool(drops(decoded))
        except Exception as error:
            raise PipelineError(
                f"the function drops of the audit failed for {self._place_text(place)}: {type(error).__name__}: {error}"
            ) from error

    def add_rows(self, topic: str, records: "Records", path: str) -> None:
        self._rows.setdefault(topic, []).append(_ids(records, path))

    def add_dead_letters(self, records: "Records") -> None:
        from headrace.pipelines.columns import JsonFields, integers_in

        topics, partitions, offsets = JsonFields(["topic"], ["partition"], ["offset"]).of(records.values)
        numbers = (integers_in(column, -1).to_pylist() for column in (partitions, offsets))
        for topic, partition, offset in zip(topics.to_pylist(), *numbers, strict=True):
            self._letters[self._number(topic, partition) | max(0, offset)] += 1

    def report(self, several_rows: Mapping[str, bool]) -> AuditReport:
        import pyarrow.compute as pc

        from headrace.pipelines.columns import integer_column

        ids, places, dropped = _joined(self._ids, True), _joined(self._places), _joined(self._dropped)
        is_dropped = pc.equal(dropped, integer_column([1])[0])
        is_letter = pc.is_in(places, value_set=integer_column(self._letters))
        rest = pc.invert(pc.or_(is_letter, is_dropped))
        required = ids.filter(rest)
        copies = dict(_counts(required))
        without_id = copies.pop(None, 0)
        known = {event_id for event_id in copies if event_id is not None}
        written: set[str | None] = set()
        unexpected = duplicates = 0
        examples: list[str] = []
        for topic, several in several_rows.items():
            for event_id, rows in _counts(_joined(self._rows.get(topic, []), True)):
                written.add(event_id)
                if event_id not in known:
                    unexpected += rows
                    examples.append(f"{topic}: {rows} unexpected of id {event_id}")
                    continue
                limit = 1 if self._declared.deduplicates else copies[event_id]
                if rows > limit and not several:
                    duplicates += rows - limit
                    examples.append(f"{topic}: id {event_id} has {rows} rows, expected at most {limit}")
        missing = without_id + sum(copies[event_id] for event_id in known - written)
        is_missing = pc.or_(
            pc.is_null(ids), pc.invert(pc.is_in(ids, value_set=_texts([each for each in written if each is not None])))
        )
        for place, event_id in zip(
            places.filter(pc.and_(rest, is_missing)).slice(0, _EXAMPLES).to_pylist(),
            ids.filter(pc.and_(rest, is_missing)).slice(0, _EXAMPLES).to_pylist(),
            strict=True,
        ):
            examples.append(f"missing: {self._place_text(place)}, id {event_id}")
        for place in set(self._letters) - set(places.filter(is_letter).to_pylist()):
            unexpected += self._letters[place]
            examples.append(f"unexpected dead letter of {self._place_text(place)}")
        duplicates += sum(count - 1 for count in self._letters.values())
        return AuditReport(
            records=len(ids),
            dropped=_true(pc.and_(is_dropped, pc.invert(is_letter))),
            dead_letters=_true(is_letter),
            missing=missing,
            rows={topic: sum(map(len, self._rows.get(topic, []))) for topic in several_rows},
            unexpected=unexpected,
            duplicates=duplicates,
            examples=sorted(examples)[: 2 * _EXAMPLES],
        )


def _ids(records: "Records", path: str) -> "pa.Array":
    import pyarrow as pa

    from headrace.pipelines.columns import JsonFields

    if path != KEY:
        return JsonFields(path.split(".")).of(records.values)[0]
    return records.keys.cast(pa.string()) if records.keys.type != pa.string() else records.keys


def _joined(arrays: "Sequence[pa.Array]", is_text: bool = False) -> "pa.Array":
    import pyarrow as pa

    from headrace.pipelines.columns import integer_column

    return pa.concat_arrays(arrays) if arrays else _texts([]) if is_text else integer_column([])


def _texts(values: Sequence[str | None]) -> "pa.Array":
    from headrace.pipelines.columns import text_column

    return text_column(values)


def _counts(ids: "pa.Array") -> Iterator[tuple[str | None, int]]:
    import pyarrow.compute as pc

    counted = pc.value_counts(ids)
    yield from zip(counted.field(0).to_pylist(), counted.field(1).to_pylist(), strict=True)


def _true(condition: "pa.Array") -> int:
    import pyarrow.compute as pc

    return pc.sum(condition).as_py() or 0
