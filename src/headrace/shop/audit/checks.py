"""The audit: joins the rows that the input requires with the rows of the outputs, by id. Runs in the driver, on Spark.

records    a verdict on each ODS record (`expected`)
events     valid records, once per id: the first copy determines the expected rows
rows       rows of the outputs: only the id, the position in the event, and the origin of each
events x rows by (topic, event_id)    ->  lost, doubled, unexpected, misplaced
rows by key in the order of offsets   ->  disordered
broken records x dead letters by (topic, partition, offset)
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from headrace.shop import schemas
from headrace.shop.audit.expected import db_verdicts, log_verdicts
from headrace.shop.audit.report import DeadLetters, Input, Latency, Output, Report
from headrace.shop.routes import Route

_ROW = "event_id STRING, seq INT, src STRUCT<p: INT, o: BIGINT>"
_LETTER = "reason STRING, topic STRING, partition INT, offset BIGINT"
_BITS = 60
_EXAMPLES = 5
_VIOLATIONS = ("lost", "doubled", "unexpected")


def reconcile(
    log: DataFrame,
    db: DataFrame,
    outputs: DataFrame,
    dead_letters: DataFrame,
    routes: Mapping[str, Route],
    since_ms: int = 0,
) -> Report:
    """Compares the outputs of `ods-dwd` with its inputs. All frames have the columns of `format("headrace")`: the two
    ODS topics, all DWD topics together, and the dead letters. `routes` are the routes of the pipeline. The latency
    ignores records that were sent before `since_ms`."""
    records = log_verdicts(log).unionByName(db_verdicts(db, routes)).persist()
    rows = _output_rows(outputs).persist()
    try:
        events = (
            records.where(sf.col("problem").isNull())
            .groupBy("topic", "event_id")
            .agg(sf.min(sf.struct("partition", "offset", "timestamp", "key", "rows")).alias("first"))
        )
        compared = _compare(events, rows).persist()
        letters = _compare_letters(records, dead_letters).persist()
        try:
            topics = [*schemas.LOG_TOPICS, *dict.fromkeys(route.topic for route in routes.values())]
            disorder = _disorder(rows)
            report = Report(
                inputs=_inputs(records, events),
                outputs=_outputs(compared, disorder, topics),
                dead_letters=_dead_letters(letters),
                latency=_latency(compared, since_ms),
            )
            if report.ok:
                return report
            examples = [*_examples(compared), *_disorder_examples(disorder), *_letter_examples(letters)]
            return replace(report, examples=examples)
        finally:
            compared.unpersist()
            letters.unpersist()
    finally:
        records.unpersist()
        rows.unpersist()


# ---- rows and events


def _output_rows(outputs: DataFrame) -> DataFrame:
    row = sf.from_json(sf.col("value").cast("string"), _ROW)
    return outputs.select("topic", "partition", "offset", "timestamp", "key", row.alias("row")).select(
        "topic",
        "partition",
        "offset",
        sf.unix_millis("timestamp").alias("written_ms"),
        sf.col("key").cast("string").alias("key"),
        "row.event_id",
        sf.coalesce("row.seq", sf.lit(0)).alias("seq"),
        sf.coalesce("row.src.p", sf.lit(-1)).alias("p"),
        sf.coalesce("row.src.o", sf.lit(-1)).alias("o"),
    )


def _compare(events: DataFrame, output_rows: DataFrame) -> DataFrame:
    """Returns the number of violations for each topic and event. Rows of long lists are compared 60 at a time, with one
    bit per row, so that Spark only has to aggregate integers of fixed size."""
    first = sf.col("first")
    parts = sf.sequence(sf.lit(0), sf.floor((sf.col("out.rows") - 1) / _BITS).cast("int"))
    expected_rows = (
        events.select("event_id", "first", sf.explode(first["rows"]).alias("out"))
        .select("event_id", "first", "out", sf.explode(parts).alias("part"))
        .select(
            sf.col("out.topic").alias("topic"),
            "event_id",
            "part",
            sf.least(sf.col("out.rows") - sf.col("part") * _BITS, sf.lit(_BITS)).alias("expected"),
            sf.xxhash64(first["key"]).alias("expected_key"),
            first["partition"].alias("expected_p"),
            first["offset"].alias("expected_o"),
            sf.unix_millis(first["timestamp"]).alias("sent_ms"),
        )
    )
    bit = sf.call_function("shiftleft", sf.lit(1).cast("long"), sf.pmod("seq", sf.lit(_BITS)).cast("int"))
    key = sf.xxhash64("key")
    actual_rows = output_rows.groupBy(
        "topic", "event_id", sf.floor(sf.col("seq") / _BITS).cast("int").alias("part")
    ).agg(
        sf.count("*").alias("rows"),
        sf.bit_or(bit).alias("bits"),
        *(
            side(column).alias(f"{side.__name__}_{name}")
            for side in (sf.min, sf.max)
            for name, column in (("p", sf.col("p")), ("o", sf.col("o")), ("key", key))
        ),
        sf.max("written_ms").alias("written_ms"),
    )
    joined = expected_rows.join(actual_rows, ["topic", "event_id", "part"], "full_outer")
    expected, rows, bits = _number("expected"), _number("rows"), _number("bits")
    expected_bits = sf.call_function("shiftleft", sf.lit(1).cast("long"), expected.cast("int")) - 1
    distinct, right = sf.bit_count(bits), sf.bit_count(bits.bitwiseAND(expected_bits))
    is_in_both = (expected > 0) & (rows > 0)
    matches = [
        sf.col(f"{side}_{name}") == sf.col(f"expected_{name}") for side in ("min", "max") for name in ("p", "o", "key")
    ]
    return joined.select(
        "topic",
        "event_id",
        expected.alias("expected"),
        rows.alias("rows"),
        (expected - right).alias("lost"),
        (rows - distinct).alias("doubled"),
        (distinct - right).alias("unexpected"),
        sf.when(is_in_both & ~reduce(Column.__and__, matches), 1).otherwise(0).alias("misplaced"),
        "sent_ms",
        sf.when(is_in_both, sf.col("written_ms") - sf.col("sent_ms")).alias("latency_ms"),
    )


def _number(name: str) -> Column:
    return sf.coalesce(sf.col(name), sf.lit(0))


def _disorder(rows: DataFrame) -> DataFrame:
    """Returns the rows that follow a row of the same key with a later origin, or in another partition."""
    window = Window.partitionBy(sf.xxhash64("topic", "key")).orderBy("partition", "offset")
    previous_row = sf.lag(sf.struct("partition", "p", "o", "seq")).over(window)
    moved = sf.col("before.partition") != sf.col("partition")
    later = (sf.col("before.o") > sf.col("o")) | (
        (sf.col("before.o") == sf.col("o")) & (sf.col("before.seq") > sf.col("seq"))
    )
    behind = (sf.col("before.p") == sf.col("p")) & later
    return rows.where(sf.col("key").isNotNull()).withColumn("before", previous_row).where(moved | behind)


def _inputs(records: DataFrame, events: DataFrame) -> list[Input]:
    sound = sf.col("problem").isNull()
    counted = {
        row["topic"]: row
        for row in records.groupBy("topic")
        .agg(sf.count("*").alias("records"), sf.count_if(sound).alias("sound"), sf.count_if(~sound).alias("broken"))
        .collect()
    }
    first = {
        row["topic"]: row
        for row in events.groupBy("topic")
        .agg(sf.count("*").alias("events"), sf.count_if(sf.size("first.rows") == 0).alias("unrouted"))
        .collect()
    }
    inputs = []
    for topic in sorted(counted, reverse=True):
        row, once = counted[topic], first.get(topic)
        distinct, unrouted = (once["events"], once["unrouted"]) if once is not None else (0, 0)
        inputs.append(
            Input(topic, row["records"], distinct - unrouted, row["sound"] - distinct, unrouted, row["broken"])
        )
    return inputs


def _outputs(compared: DataFrame, disorder: DataFrame, topics: list[str]) -> list[Output]:
    names = ("rows", "expected", *_VIOLATIONS, "misplaced")
    sums = {
        row["topic"]: row
        for row in compared.groupBy("topic").agg(*(sf.sum(name).alias(name) for name in names)).collect()
    }
    disordered = {row["topic"]: row["count"] for row in disorder.groupBy("topic").count().collect()}
    outputs = []
    for topic in [*topics, *sorted(set(sums) - set(topics))]:
        row = sums.get(topic)
        figures: dict[str, int] = {name: row[name] if row is not None else 0 for name in names}
        outputs.append(Output(topic, **figures, disordered=disordered.get(topic, 0)))
    return outputs


def _latency(compared: DataFrame, since_ms: int) -> Latency | None:
    shares = sf.percentile_approx("latency_ms", [0.5, 0.99], 10_000)
    row = (
        compared.where(sf.col("sent_ms") >= since_ms)
        .agg(shares.alias("shares"), sf.max("latency_ms").alias("most"))
        .first()
    )
    if row is None or row["most"] is None:
        return None
    p50_ms, p99_ms = row["shares"]
    return Latency(float(p50_ms), float(p99_ms), float(row["most"]))


# ---- dead letters


def _compare_letters(records: DataFrame, dead_letters: DataFrame) -> DataFrame:
    """Returns the number of violations for each broken record, and for each record that has a dead letter."""
    place = ["topic", "partition", "offset"]
    letter = sf.from_json(sf.col("value").cast("string"), _LETTER)
    letters = (
        dead_letters.select(letter.alias("letter"))
        .select(*(f"letter.{name}" for name in place))
        .groupBy(*place)
        .agg(sf.count("*").alias("letters"))
    )
    broken = records.where(sf.col("problem").isNotNull()).select(*place, "problem", sf.lit(1).alias("expected"))
    joined = broken.join(letters, place, "full_outer")
    expected, count = _number("expected"), _number("letters")
    return joined.select(
        *place,
        "problem",
        expected.alias("expected"),
        count.alias("letters"),
        sf.when(count == 0, 1).otherwise(0).alias("lost"),
        sf.greatest(count - 1, sf.lit(0)).alias("doubled"),
        sf.when(expected == 0, 1).otherwise(0).alias("unexpected"),
    )


def _dead_letters(letters: DataFrame) -> list[DeadLetters]:
    names = ("letters", "expected", *_VIOLATIONS)
    sums: dict[str, Any] = {
        row["topic"] or "an unknown topic": row
        for row in letters.groupBy("topic").agg(*(sf.sum(name).alias(name) for name in names)).collect()
    }
    topics = [schemas.ODS_LOG, schemas.ODS_DB]
    return [
        DeadLetters(topic, **{name: sums[topic][name] if topic in sums else 0 for name in names})
        for topic in [*topics, *sorted(set(sums) - set(topics))]
    ]


# ---- examples


def _examples(compared: DataFrame) -> list[str]:
    wrong = sf.col("lost") + sf.col("doubled") + sf.col("unexpected") + sf.col("misplaced") > 0
    kinds = (*_VIOLATIONS, "misplaced")
    return [
        f"{row['topic']}: event {row['event_id']} has {row['rows']} of {row['expected']} rows, "
        + ", ".join(f"{row[kind]} {kind}" for kind in kinds if row[kind])
        for row in compared.where(wrong).orderBy("topic", "event_id").limit(_EXAMPLES).collect()
    ]


def _disorder_examples(disorder: DataFrame) -> list[str]:
    rows = disorder.orderBy("topic", "partition", "offset").limit(_EXAMPLES).collect()
    return [
        f"{row['topic']}: key {row['key']} at partition {row['partition']}, offset {row['offset']} is out of order: "
        f"its origin is offset {row['o']}, the row before it has the origin {row['before']['o']} "
        f"in partition {row['before']['partition']}"
        for row in rows
    ]


def _letter_examples(letters: DataFrame) -> list[str]:
    wrong = sf.col("lost") + sf.col("doubled") + sf.col("unexpected") > 0
    return [
        f"dead letters: {row['topic']}, partition {row['partition']}, offset {row['offset']} "
        f"({row['problem'] or 'valid, or not in the input'}) has {row['letters']} of {row['expected']}"
        for row in letters.where(wrong).orderBy("topic", "partition", "offset").limit(_EXAMPLES).collect()
    ]
