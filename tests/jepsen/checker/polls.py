"""The order of reads: within an operation, and between the operations of a process.

Within an operation, keys whose assignment changed meanwhile are exempt. Between operations, findings are allowed while
the process subscribes: a rebalance may have given the partition to another member, which went on, or back. A process
that assigns continues where its last successful operation ended: after an abort it must read the same values again. A
new assignment keeps the positions of keys that were in the previous one.
"""

from collections.abc import Iterator
from itertools import pairwise

from tests.jepsen.checker.findings import Finding
from tests.jepsen.checker.history import Key, Op, Value
from tests.jepsen.checker.versions import Analysis


def find_int_poll_anomalies(analysis: Analysis) -> Iterator[Finding]:
    """int-poll-skip and int-nonmonotonic-poll."""
    for transaction in analysis.transactions:
        rebalanced = set(transaction.op.rebalanced)
        for key, pairs in transaction.reads.items():
            if key in rebalanced:
                continue
            order = analysis.order(key)
            for (_, first), (_, second) in pairwise(pairs):
                distance = order.distance(first, second)
                if distance > 1:
                    skipped = order.between(first, second)
                    yield Finding("int-poll-skip", _skip(key, first, second, skipped, transaction.op), key)
                elif distance < 1:
                    yield Finding("int-nonmonotonic-poll", f"{key}: {second} after {first}: {transaction}", key)


def find_poll_anomalies(analysis: Analysis) -> Iterator[Finding]:
    """poll-skip and nonmonotonic-poll."""
    for ops in analysis.by_process():
        yield from _check_process(analysis, ops)


def _check_process(analysis: Analysis, ops: list[Op]) -> Iterator[Finding]:
    last: dict[Key, Value] = {}
    subscribes = False
    for op in ops:
        if op.f in ("assign", "subscribe"):
            if op.type != "fail":
                kept = op.value if subscribes == (op.f == "subscribe") else []
                last = {key: value for key, value in last.items() if key in kept}
                subscribes = op.f == "subscribe"
        elif op.f == "txn":
            reads = op.reads()
            for key, pairs in reads.items():
                if key not in last or not pairs:
                    continue
                order = analysis.order(key)
                first, second = last[key], pairs[0][1]
                distance = order.distance(first, second)
                if distance > 1:
                    text = _skip(key, first, second, order.between(first, second), op)
                    yield Finding("poll-skip", text, key, subscribes)
                elif distance < 1:
                    yield Finding("nonmonotonic-poll", f"{key}: {second} after {first}: {op}", key, subscribes)
            if op.type == "ok":
                last.update((key, pairs[-1][1]) for key, pairs in reads.items() if pairs)


def _skip(key: Key, first: Value, second: Value, skipped: list[Value], op: Op) -> str:
    return f"{key}: {second} after {first}, without {skipped[:10]}: {op}"
