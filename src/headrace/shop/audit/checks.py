"""The audit: joins the rows that the input requires with the rows of the outputs, by id. Columnar, without Spark.

inputs     a verdict on each ODS record (`verdicts`, or `expected` if it is unclear)
events     valid records, once per id: the first copy determines the expected rows
rows       rows of the outputs: only the id, the position in the event, and the origin of each
events x rows by event_id, for each output topic    ->  lost, doubled, unexpected, misplaced
rows by key in the order of offsets                 ->  disordered
broken records x dead letters by (topic, partition, offset)

Owner of the state: `Reconciliation`, filled by one thread. It keeps the ids of all events and rows in memory, about 100
bytes per row.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from headrace.common.extras import requires_extra
from headrace.pipelines.columns import JsonFields, binary_column, integer_column, integers_in, is_true, text_column
from headrace.pipelines.topic_reader import Records
from headrace.shop import schemas
from headrace.shop.audit.report import DeadLetters, Input, Latency, Output, Report
from headrace.shop.audit.verdicts import Judge, Verdict, judge_db, judge_log
from headrace.shop.routes import Route

with requires_extra("arrow"):
    import pyarrow as pa
    import pyarrow.compute as pc

__all__ = ["Place", "Reconciliation", "SecondJudge", "UnclearRecord"]

_EXAMPLES = 5
Place = tuple[str, int, int]
"""Topic, partition and offset of a record."""


class UnclearRecord(NamedTuple):
    """A record that only Spark's own parser can judge."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class Event(NamedTuple):
    """The first copy of an event."""

    partition: int
    offset: int
    sent_ms: int
    key: str | None
    rows: tuple[tuple[str, int], ...]


SecondJudge = Callable[[Sequence[UnclearRecord]], Mapping[Place, Verdict]]
"""Returns the verdict on each unclear record."""


class Reconciliation:
    """Compares the outputs of `ods-dwd` with its inputs. `routes` are the routes of the pipeline, and `second_judge`
    judges unclear records."""

    def __init__(self, routes: Mapping[str, Route], second_judge: SecondJudge) -> None:
        self._second_judge = second_judge
        self._judges: dict[str, Judge] = {schemas.ODS_LOG: judge_log, schemas.ODS_DB: judge_db(routes)}
        self._topics = [*schemas.LOG_TOPICS, *dict.fromkeys(route.topic for route in routes.values())]
        self._records: Counter[str] = Counter()
        self._valid: Counter[str] = Counter()
        self._events: dict[str, dict[str, Event]] = defaultdict(dict)
        self._broken: dict[Place, str] = {}
        self._unclear: dict[Place, tuple[UnclearRecord, int]] = {}
        self._rows: dict[str, list[pa.Table]] = defaultdict(list)
        self._letters: Counter[Place | None] = Counter()
        self._row_fields = JsonFields(["event_id"], ["seq"], ["src", "p"], ["src", "o"])
        self._letter_fields = JsonFields(["topic"], ["partition"], ["offset"])

    # ---- reading

    def add_inputs(self, records: Records) -> None:
        judge = self._judges[records.topic]
        self._records[records.topic] += len(records.values)
        keys, values = records.keys.to_pylist(), records.values.to_pylist()
        sent_ms = _milliseconds(records.timestamps).to_pylist()
        for key, value, offset, time_ms in zip(keys, values, records.offsets.to_pylist(), sent_ms, strict=True):
            verdict = judge(key, value)
            if verdict is None:
                unclear = UnclearRecord(records.topic, records.partition, offset, key, value)
                self._unclear[unclear[:3]] = unclear, time_ms
            else:
                self._judged(records.topic, records.partition, offset, time_ms, verdict)

    def _judged(self, topic: str, partition: int, offset: int, sent_ms: int, verdict: Verdict) -> None:
        if verdict.problem is not None:
            self._broken[topic, partition, offset] = verdict.problem
            return
        self._valid[topic] += 1
        events = self._events[topic]
        first = events.get(verdict.event_id)
        if first is None or (partition, offset) < first[:2]:
            events[verdict.event_id] = Event(partition, offset, sent_ms, verdict.key, verdict.rows)

    def add_outputs(self, records: Records) -> None:
        event_id, seq, p, o = self._row_fields.of(records.values)
        rows = len(records.values)
        columns = {
            "event_id": event_id,
            "seq": integers_in(seq, 0),
            "p": integers_in(p, -1),
            "o": integers_in(o, -1),
            "key": records.keys,
            "partition": _repeat(records.partition, rows),
            "offset": records.offsets,
            "written_ms": _milliseconds(records.timestamps),
        }
        self._rows[records.topic].append(pa.Table.from_arrays(list(columns.values()), names=list(columns)))

    def add_dead_letters(self, records: Records) -> None:
        topics, partitions, offsets = self._letter_fields.of(records.values)
        places = zip(
            topics.to_pylist(),
            integers_in(partitions, -1).to_pylist(),
            integers_in(offsets, -1).to_pylist(),
            strict=True,
        )
        self._letters.update(None if place[0] is None else place for place in places)

    # ---- comparing

    def report(self, since_ms: int = 0) -> Report:
        """Returns the result. The latency ignores records that were sent before `since_ms`."""
        if self._unclear:
            verdicts = self._second_judge([record for record, _ in self._unclear.values()])
            for place, (_, sent_ms) in self._unclear.items():
                self._judged(*place, sent_ms, verdicts[place])
            self._unclear.clear()
        compared = [self._compare(topic) for topic in self._topics]
        examples = [example for one in sorted(compared, key=lambda one: one.output.topic) for example in one.examples]
        disorder = [example for one in sorted(compared, key=lambda one: one.output.topic) for example in one.disorder]
        return Report(
            inputs=self._inputs(),
            outputs=[one.output for one in compared],
            dead_letters=self._dead_letters(),
            latency=_latency([latencies for one in compared for latencies in one.latencies], since_ms),
            examples=[*examples[:_EXAMPLES], *disorder[:_EXAMPLES], *self._letter_examples()],
        )

    def _inputs(self) -> list[Input]:
        broken = Counter(topic for topic, _, _ in self._broken)
        inputs = []
        for topic in sorted(self._records, reverse=True):
            events = self._events[topic]
            unrouted = sum(not event.rows for event in events.values())
            inputs.append(
                Input(
                    topic,
                    self._records[topic],
                    sound=len(events) - unrouted,
                    duplicates=self._valid[topic] - len(events),
                    unrouted=unrouted,
                    broken=broken[topic],
                )
            )
        return inputs

    def _compare(self, topic: str) -> "_Compared":
        source = schemas.ODS_LOG if topic in schemas.LOG_TOPICS else schemas.ODS_DB
        expected = _expected(topic, self._events[source])
        if not self._rows[topic]:
            lost = pc.sum(expected["count"]).as_py() or 0
            examples = [_example(topic, event_id, 0, count, lost=count) for event_id, count in _first(expected)]
            return _Compared(Output(topic, 0, lost, lost=lost), examples, [], [])
        rows = pa.concat_tables(self._rows[topic]).combine_chunks()
        event = pc.index_in(rows["event_id"], value_set=expected["event_id"])
        known = rows.append_column("event", event).filter(pc.is_valid(event))
        unknown = rows.filter(pc.is_null(event))
        return _compare_topic(topic, rows, expected, known, unknown)

    # ---- dead letters

    def _dead_letters(self) -> list[DeadLetters]:
        figures: dict[str, Counter[str]] = defaultdict(Counter)
        for place in {*self._broken, *self._letters}:
            count, is_expected = self._letters[place], place in self._broken
            each = figures["an unknown topic" if place is None else place[0]]
            each["letters"] += count
            each["expected"] += is_expected
            each["lost"] += count == 0
            each["doubled"] += max(count - 1, 0)
            each["unexpected"] += not is_expected
        topics = [schemas.ODS_LOG, schemas.ODS_DB]
        names = ("letters", "expected", "lost", "doubled", "unexpected")
        return [
            DeadLetters(topic, **{name: figures[topic][name] for name in names})
            for topic in [*topics, *sorted(set(figures) - set(topics))]
        ]

    def _letter_examples(self) -> list[str]:
        places = {*self._broken, *self._letters}
        wrong = [place for place in places if place not in self._broken or self._letters[place] != 1]
        return [
            f"dead letters: {topic}, partition {partition}, offset {offset} "
            f"({self._broken.get((topic, partition, offset)) or 'valid, or not in the input'}) "
            f"has {self._letters[place]} of {int(place in self._broken)}"
            for place in sorted(wrong, key=lambda each: each or ("", -1, -1))[:_EXAMPLES]
            for topic, partition, offset in [place or ("an unknown topic", -1, -1)]
        ]


class _Compared(NamedTuple):
    """The result for one output topic."""

    output: Output
    examples: list[str]
    disorder: list[str]
    latencies: list[tuple[pa.Array, pa.Array]]
    """The time at which each event was sent, and the time until its last row was written, in milliseconds."""


def _expected(topic: str, events: Mapping[str, Event]) -> pa.Table:
    """Returns the events that require rows in a topic."""
    required = [
        (event_id, event, count)
        for event_id, event in events.items()
        for output, count in event.rows
        if output == topic
    ]
    columns = {
        "event_id": text_column([event_id for event_id, _, _ in required]),
        "count": integer_column(count for _, _, count in required),
        "p": integer_column(event.partition for _, event, _ in required),
        "o": integer_column(event.offset for _, event, _ in required),
        "sent_ms": integer_column(event.sent_ms for _, event, _ in required),
        "key": binary_column([event.key for _, event, _ in required]),
    }
    return pa.Table.from_arrays(list(columns.values()), names=list(columns))


def _compare_topic(topic: str, rows: pa.Table, expected: pa.Table, known: pa.Table, unknown: pa.Table) -> _Compared:
    """`known` are the rows of expected events, with the event's index. `unknown` are the other rows."""
    known = _sorted(known, "event", "seq")
    of_event = expected.take(known["event"])
    is_distinct = _is_first(known, "event", "seq")
    is_in_range = pc.and_(
        pc.greater_equal(known["seq"], integer_column([0])[0]), pc.less(known["seq"], of_event["count"])
    )
    distinct, right = _count(is_distinct), _count(pc.and_(is_distinct, is_in_range))
    differs = pc.or_(
        pc.or_(pc.not_equal(known["p"], of_event["p"]), pc.not_equal(known["o"], of_event["o"])),
        pc.or_(
            is_true(pc.not_equal(known["key"], of_event["key"])),
            pc.not_equal(pc.is_null(known["key"]), pc.is_null(of_event["key"])),
        ),
    )
    misplaced = pc.unique(known["event"].filter(differs))
    distinct_unknown = _count(_is_first(_sorted(unknown, "event_id", "seq"), "event_id", "seq"))
    disordered, disorder_examples = _disorder(topic, rows)
    count = pc.sum(expected["count"]).as_py() or 0
    output = Output(
        topic,
        rows=rows.num_rows,
        expected=count,
        lost=count - right,
        doubled=rows.num_rows - distinct - distinct_unknown,
        unexpected=distinct - right + distinct_unknown,
        misplaced=len(misplaced),
        disordered=disordered,
    )
    examples = []
    if output.lost or output.doubled or output.unexpected or output.misplaced:
        examples = _examples(topic, expected, known, unknown, misplaced)
    return _Compared(output, examples, disorder_examples, [_latencies(expected, known)])


def _latencies(expected: pa.Table, known: pa.Table) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Returns the time at which each event was sent, and how long its last row took, in milliseconds."""
    written = _sorted(known, "event", "written_ms", order="descending")
    last = written.filter(_is_first(written, "event"))
    sent_ms = expected["sent_ms"].take(last["event"])
    return sent_ms, pc.subtract(last["written_ms"], sent_ms)


def _sorted(rows: pa.Table, *names: str, order: str = "ascending") -> pa.Table:
    """Sorts rows. PyArrow's method of tables would import its query engine, and with it pandas."""
    return rows.take(pc.sort_indices(rows, sort_keys=[(name, order) for name in names]))


def _is_first(rows: pa.Table, *names: str) -> pa.Array:
    """Returns, for each of the sorted rows, whether it differs from the row before it in any of these columns."""
    if rows.num_rows == 0:
        return pc.is_null(integer_column([]))
    changes = pc.is_valid(integer_column([0] * (rows.num_rows - 1)))
    changes = pc.invert(changes)
    for name in names:
        column = rows[name].combine_chunks()
        before, after = column.slice(0, len(column) - 1), column.slice(1)
        one_is_null = pc.not_equal(pc.is_null(before), pc.is_null(after))
        changes = pc.or_(changes, pc.or_(is_true(pc.not_equal(before, after)), one_is_null))
    return pa.concat_arrays([pc.is_valid(integer_column([0])), changes])


def _count(condition: pa.Array | pa.ChunkedArray) -> int:
    return pc.sum(condition).as_py() or 0


def _disorder(topic: str, rows: pa.Table) -> tuple[int, list[str]]:
    """Counts the rows that follow a row of the same key with a later origin, or in another partition."""
    rows = rows.filter(pc.is_valid(rows["key"]))
    if rows.num_rows < 2:
        return 0, []
    codes = pc.dictionary_encode(rows["key"].combine_chunks()).indices
    rows = rows.append_column("code", codes)
    rows = _sorted(rows, "code", "partition", "offset")
    before, after = rows.slice(0, rows.num_rows - 1), rows.slice(1)
    is_later = pc.or_(
        pc.greater(before["o"], after["o"]),
        pc.and_(pc.equal(before["o"], after["o"]), pc.greater(before["seq"], after["seq"])),
    )
    wrong = pc.and_(
        pc.equal(before["code"], after["code"]),
        pc.or_(
            pc.not_equal(before["partition"], after["partition"]),
            pc.and_(pc.equal(before["p"], after["p"]), is_later),
        ),
    )
    count = _count(wrong)
    if not count:
        return 0, []
    pairs = zip(after.filter(wrong).to_pylist(), before.filter(wrong).to_pylist(), strict=True)
    first = sorted(pairs, key=lambda pair: (pair[0]["partition"], pair[0]["offset"]))[:_EXAMPLES]
    return count, [
        f"{topic}: key {row['key'].decode(errors='replace')} at partition {row['partition']}, offset {row['offset']} "
        f"is out of order: its origin is offset {row['o']}, the row before it has the origin {previous['o']} "
        f"in partition {previous['partition']}"
        for row, previous in first
    ]


def _latency(latencies: Iterable[tuple[pa.Array, pa.Array]], since_ms: int) -> Latency | None:
    after = [taken.filter(pc.greater_equal(sent, integer_column([since_ms])[0])) for sent, taken in latencies]
    times = sorted(time for each in after for time in each.to_pylist())
    if not times:
        return None
    p50, p99 = (times[max(0, -(-len(times) * percent // 100) - 1)] for percent in (50, 99))
    return Latency(float(p50), float(p99), float(times[-1]))


# ---- examples


def _first(expected: pa.Table) -> list[tuple[str, int]]:
    found = zip(expected["event_id"].to_pylist(), expected["count"].to_pylist(), strict=True)
    return sorted(found)[:_EXAMPLES]


def _examples(topic: str, expected: pa.Table, known: pa.Table, unknown: pa.Table, misplaced: pa.Array) -> list[str]:
    """Returns a line for the first events with violations, by id."""
    counts, ids = expected["count"].to_pylist(), expected["event_id"].to_pylist()
    rows, distinct, right = Counter[int](), Counter[int](), Counter[int]()
    for (event, seq), copies in Counter(zip(known["event"].to_pylist(), known["seq"].to_pylist(), strict=True)).items():
        rows[event] += copies
        distinct[event] += 1
        right[event] += 0 <= seq < counts[event]
    wrong_places = set(misplaced.to_pylist())
    found: list[tuple[str, int, int, dict[str, int]]] = []
    for event, count in enumerate(counts):
        violations = {
            "lost": count - right[event],
            "doubled": rows[event] - distinct[event],
            "unexpected": distinct[event] - right[event],
            "misplaced": int(event in wrong_places),
        }
        if any(violations.values()):
            found.append((ids[event], rows[event], count, violations))
    strange: dict[str, Counter[int]] = defaultdict(Counter)
    for event_id, seq in zip(unknown["event_id"].to_pylist(), unknown["seq"].to_pylist(), strict=True):
        strange[str(event_id)][seq] += 1
    for event_id, seqs in strange.items():
        total = seqs.total()
        found.append((event_id, total, 0, {"doubled": total - len(seqs), "unexpected": len(seqs)}))
    return [
        _example(topic, event_id, total, count, **violations)
        for event_id, total, count, violations in sorted(found, key=lambda each: each[0])[:_EXAMPLES]
    ]


def _example(topic: str, event_id: str, rows: int, expected: int, **violations: int) -> str:
    kinds = ", ".join(f"{count} {kind}" for kind, count in violations.items() if count)
    return f"{topic}: event {event_id} has {rows} of {expected} rows, {kinds}"


# ---- columns


def _milliseconds(timestamps: pa.Array) -> pa.Array:
    return timestamps.cast(pa.timestamp("ms", timestamps.type.tz), safe=False).cast(pa.int64())


def _repeat(number: int, rows: int) -> pa.Array:
    return integer_column([number] * rows)
