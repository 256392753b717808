"""The checker finds each planted anomaly, and exactly that; histories of an ideal Kafka are valid."""

import json
import random
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.jepsen.checker import ANOMALIES, Op, check, read_history, write_history
from tests.jepsen.checker.findings import ALLOWED
from tests.jepsen.checker.graph import components, shortest_cycle
from tests.jepsen.checker.history import number_ops
from tests.jepsen.ideal_log import IdealKafka
from tests.jepsen.planted import PLANTS, History

SEEDS = range(5)
IMPLIED = {"lost-write": {"unseen"}}
"""A lost write that was acknowledged is never seen either."""


@pytest.mark.parametrize("seed", range(12))
def test_ideal_histories_are_valid(seed: int) -> None:
    kafka = IdealKafka(seed)
    verdict = check(kafka.history)
    assert verdict.anomalies == {}, verdict.describe()
    kinds = {op.type for op in kafka.history if op.f == "txn"}
    assert kinds == {"invoke", "ok", "fail", "info"}


@pytest.mark.parametrize("anomaly", ANOMALIES)
def test_finds_exactly_the_planted_anomaly(anomaly: str) -> None:
    planted = 0
    for seed in SEEDS:
        history = History(seed)
        before = check(history.ops)
        if not PLANTS[anomaly](history):
            continue
        planted += 1
        verdict = check(history.ops)
        expected = set() if anomaly in ALLOWED else {anomaly} | IMPLIED.get(anomaly, set())
        assert set(verdict.anomalies) == expected, f"seed {seed}: {verdict.describe()}"
        if anomaly in ALLOWED:
            assert verdict.allowed.get(anomaly, 0) > before.allowed.get(anomaly, 0) or "G0" in anomaly, f"seed {seed}"
    assert planted >= 2, "too few histories have a place for it"


def test_every_anomaly_has_a_plant() -> None:
    assert set(PLANTS) == set(ANOMALIES)


@pytest.mark.parametrize("anomaly", ["G0", "G0-process", "G0-realtime", "int-send-skip"])
def test_allowed_anomalies_are_reported(anomaly: str) -> None:
    """In a history without other transactions, in which larger cycles would contain the planted one."""
    history = History(1)
    PLANTS[anomaly](history)
    planted = [op for op in history.ops if op.process >= 10_000]
    verdict = check(planted)
    assert verdict.allowed.get(anomaly) == 1, verdict.describe()
    assert set(verdict.anomalies) <= {"unseen"}


def txn(process: int, kind: str, *steps: list, **options: object) -> list[Op]:
    return [Op(process, "invoke", "txn"), Op(process, kind, "txn", list(steps), **options)]


def control(process: int, f: str, *keys: str) -> list[Op]:
    return [Op(process, "invoke", f, list(keys)), Op(process, "ok", f, list(keys))]


def test_skips_are_allowed_while_a_process_subscribes() -> None:
    writes = [op for value in range(4) for op in txn(1, "ok", ["send", "a", [value, value]])]
    everything = txn(2, "ok", ["poll", {"a": [[value, value] for value in range(4)]}])
    reads = [*txn(3, "ok", ["poll", {"a": [[0, 0]]}]), *txn(3, "ok", ["poll", {"a": [[3, 3]]}])]
    backwards = txn(3, "ok", ["poll", {"a": [[1, 1]]}])
    assigned = check([*writes, *everything, *control(3, "assign", "a"), *reads, *backwards])
    assert assigned.anomalies == {"poll-skip": 1, "nonmonotonic-poll": 1}
    subscribed = check([*writes, *everything, *control(3, "subscribe", "a"), *reads, *backwards])
    assert subscribed.anomalies == {}
    assert subscribed.allowed == {"poll-skip": 1, "nonmonotonic-poll": 1}


def test_a_new_assignment_forgets_the_positions_of_other_keys() -> None:
    writes = [op for value in range(3) for op in txn(1, "ok", ["send", "a", [value, value]])]
    everything = txn(2, "ok", ["poll", {"a": [[value, value] for value in range(3)]}])
    first, last = txn(3, "ok", ["poll", {"a": [[0, 0]]}]), txn(3, "ok", ["poll", {"a": [[2, 2]]}])
    kept = [*control(3, "assign", "a"), *first, *control(3, "assign", "a", "b"), *last]
    assert check([*writes, *everything, *kept]).anomalies == {"poll-skip": 1}
    dropped = [*control(3, "assign", "a"), *first, *control(3, "assign", "b"), *control(3, "assign", "a"), *last]
    assert check([*writes, *everything, *dropped]).anomalies == {}


def test_rebalanced_keys_are_exempt_within_an_operation() -> None:
    writes = [op for value in range(3) for op in txn(1, "ok", ["send", "a", [value, value]])]
    everything = txn(2, "ok", ["poll", {"a": [[value, value] for value in range(3)]}])
    steps = [["poll", {"a": [[2, 2]]}], ["poll", {"a": [[0, 0]]}], ["poll", {"a": [[2, 2]]}]]
    assert check([*writes, *everything, *txn(3, "ok", *steps)]).anomalies == {
        "int-nonmonotonic-poll": 1,
        "int-poll-skip": 1,
    }
    assert check([*writes, *everything, *txn(3, "ok", *steps, rebalanced=["a"])]).anomalies == {}


def test_reads_of_a_failed_transaction_do_not_move_the_position() -> None:
    writes = [op for value in range(3) for op in txn(1, "ok", ["send", "a", [value, value]])]
    everything = txn(2, "ok", ["poll", {"a": [[value, value] for value in range(3)]}])
    reads = [
        *control(3, "assign", "a"),
        *txn(3, "ok", ["poll", {"a": [[0, 0]]}]),
        *txn(3, "fail", ["poll", {"a": [[1, 1]]}]),
    ]
    assert check([*writes, *everything, *reads, *txn(3, "ok", ["poll", {"a": [[1, 1]]}])]).anomalies == {}
    assert check([*writes, *everything, *reads, *txn(3, "ok", ["poll", {"a": [[2, 2]]}])]).anomalies == {"poll-skip": 1}


def test_an_unknown_outcome_counts_as_committed_once_one_of_its_writes_was_read() -> None:
    unknown = txn(1, "info", ["send", "a", [0, 0]], ["send", "b", [0, 1]])
    later = txn(2, "ok", ["send", "b", [1, 2]])
    nothing_read = [*unknown, *later, *txn(3, "ok", ["poll", {"b": [[1, 2]]}])]
    assert check(nothing_read).anomalies == {}
    half_read = [*unknown, *later, *txn(3, "ok", ["poll", {"a": [[0, 0]], "b": [[1, 2]]}])]
    assert check(half_read).anomalies == {"lost-write": 1}


def test_writes_of_a_killed_worker_are_known_values() -> None:
    history = [Op(1, "invoke", "txn", [["send", "a", 5]]), *txn(2, "ok", ["poll", {"a": [[0, 5]]}])]
    assert check(history).anomalies == {}


def test_cycles_that_need_write_write_dependencies_are_allowed() -> None:
    first = Op(1, "ok", "txn", [["send", "a", [0, 1]], ["poll", {"b": [[0, 3]]}]])
    second = Op(2, "ok", "txn", [["send", "a", [1, 2]], ["send", "b", [0, 3]]])
    reads = txn(3, "ok", ["poll", {"a": [[0, 1], [1, 2]]}])
    verdict = check([Op(1, "invoke", "txn"), Op(2, "invoke", "txn"), first, second, *reads])
    assert verdict.is_valid
    assert verdict.allowed == {"G1c": 1}


def test_one_process_has_one_operation_at_a_time() -> None:
    with pytest.raises(ValueError, match="while another one runs"):
        number_ops([Op(1, "invoke", "txn"), Op(1, "invoke", "txn")])
    with pytest.raises(ValueError, match="without an invocation"):
        number_ops([Op(1, "ok", "txn")])


def test_history_files(tmp_path: Path) -> None:
    history = IdealKafka(3).history
    write_history(tmp_path / "history.jsonl", history)
    rows = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert rows[0]["type"] == "invoke"
    assert [
        (op.process, op.type, op.f, op.value, op.rebalanced) for op in read_history(tmp_path / "history.jsonl")
    ] == [(op.process, op.type, op.f, op.value, op.rebalanced) for op in history]


def test_long_histories() -> None:
    started = time.process_time()
    kafka = IdealKafka(7, operations=5_000, workers=8, keys=8)
    generated = time.process_time()
    verdict = check(kafka.history)
    print(f"{len(kafka.history):,} rows: {generated - started:.1f} s + {time.process_time() - generated:.1f} s")
    assert verdict.is_valid, verdict.describe()


@given(st.integers(2, 12), st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=30))
def test_components_are_nodes_that_reach_each_other(count: int, pairs: list[tuple[int, int]]) -> None:
    edges: list[list[int]] = [[] for _ in range(count)]
    for source, target in pairs:
        if source < count and target < count and source != target:
            edges[source].append(target)
    reach = [{node} for node in range(count)]
    for _ in range(count):
        for source in range(count):
            for target in edges[source]:
                reach[source] |= reach[target]
    expected = {frozenset(other for other in reach[node] if node in reach[other]) for node in range(count)}
    found = components(edges)
    assert {frozenset(component) for component in found} == {each for each in expected if len(each) > 1}
    for component in found:
        cycle = shortest_cycle(edges, component, component)
        assert set(cycle) <= set(component)
        for source, target in zip(cycle, cycle[1:] + cycle[:1], strict=True):
            assert target in edges[source]


def test_random_removals_are_never_missed() -> None:
    """Whichever acknowledged value no poll returns, it is unseen."""
    choice = random.Random(5)
    for seed in SEEDS:
        history = History(seed)
        written = [
            (key, pair[1]) for op in history.transactions() for key, pairs in op.writes().items() for pair in pairs
        ]
        history.forget(*choice.choice(written))
        assert "unseen" in check(history.ops).anomalies
