"""The audit's two judges agree: a verdict without Spark is the one of Spark, for hostile events too."""

import json
import random
from typing import Any

from headrace.shop.audit.checks import UnclearRecord
from headrace.shop.audit.expected import judge_on_spark
from headrace.shop.audit.verdicts import judge_db, judge_log
from headrace.shop.datagen.stream import EventStream, StreamSettings
from headrace.shop.routes import ROUTES

TS = 1_790_000_000_000
JUDGES = {"ods_log": judge_log, "ods_db": judge_db(ROUTES)}
VALUES = [
    "null", "true", "0", "-1", "1.5", "1e3", "1e400", str(2**31), str(2**63 - 1), str(2**63), '""', '" "', '"x"', '"5"',
    "[]", "{}", "[null]", "[{}]", "[1]", '{"mid":"m"}', '{"mid":" "}', "'x'", "NaN", "-Infinity", '"\\ud800"',
    '"\\u00e4"', '"2026-01-01 00:00:00"',
    '"2026-01-01T00:00:00Z"', "12345678901234567.89", "tru", "", '{"a":1,"a":2}', '"insert"', '"order_info"',
]  # fmt: skip


def mutants(value: str, rng: random.Random) -> list[str]:
    """Returns variations of a valid event: other values, other names, lost and additional characters."""
    event = json.loads(value)
    names = list(event)
    found = []
    for _ in range(12):
        changed = json.loads(value)
        target, name = changed, rng.choice(names)
        if isinstance(changed[name], dict) and rng.random() < 0.7:
            target, name = changed[name], rng.choice(list(changed[name]))
        target[name] = "MUTANT"
        found.append(json.dumps(changed).replace('"MUTANT"', rng.choice(VALUES), 1))
    at = rng.randrange(1, len(value))
    found += [
        value[:at],
        value[:at] + rng.choice("{}[],:\"'0x \\") + value[at:],
        value + rng.choice([" ", "x", "{}", ",", "}"]),
    ]
    found += [" " + value, "\n" + value, "\ufeff" + value, value.replace("{", "{ ", 1)]
    return found  # fmt: skip


def test_verdicts_agree(spark: Any) -> None:
    rng = random.Random(7)
    block = EventStream(StreamSettings(events=400, span_ms=60_000, devices=20, broken=0.0), TS).take(400)
    records = []
    for topic, values in zip(("ods_log", "ods_db"), block.values, strict=True):
        for value in rng.sample([each for each in values if isinstance(each, str)], 40):
            for mutant in [value, *mutants(value, rng)]:
                records.append(UnclearRecord(topic, 0, len(records), b"k", mutant.encode("utf-8", "surrogatepass")))
        records += [
            UnclearRecord(topic, 0, len(records) + n, b"k", each) for n, each in enumerate((None, b"", b"\xff{}"))
        ]
    by_spark = judge_on_spark(spark, records, ROUTES)
    certain = 0
    for record in records:
        verdict = JUDGES[record.topic](record.key, record.value)
        if verdict is None:
            continue
        certain += 1
        other = by_spark[record[:3]]
        assert (verdict.problem is None) == (other.problem is None), (record, verdict, other)
        if verdict.problem is None:
            assert verdict == other, record
    assert certain > len(records) // 3
