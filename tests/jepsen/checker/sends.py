"""The order of sends: within an operation, and between the operations of a process."""

from collections.abc import Iterator
from itertools import pairwise

from tests.jepsen.checker.findings import ALLOWED, Finding
from tests.jepsen.checker.history import Key, Value
from tests.jepsen.checker.versions import Analysis


def find_int_send_anomalies(analysis: Analysis) -> Iterator[Finding]:
    """int-nonmonotonic-send, and int-send-skip, which is normal: transactions do not isolate writes."""
    for transaction in analysis.transactions:
        for key, pairs in transaction.writes.items():
            order = analysis.order(key)
            for (_, first), (_, second) in pairwise(pairs):
                distance = order.distance(first, second)
                if distance > 1:
                    text = f"{key}: {order.between(first, second)[:10]} between {first} and {second}: {transaction}"
                    yield Finding("int-send-skip", text, key, "int-send-skip" in ALLOWED)
                elif distance < 1:
                    yield Finding("int-nonmonotonic-send", f"{key}: {second} before {first}: {transaction}", key)


def find_nonmonotonic_sends(analysis: Analysis) -> Iterator[Finding]:
    """nonmonotonic-send, between the operations of a process whose outcome is ok or unknown."""
    for ops in analysis.by_process():
        last: dict[Key, Value] = {}
        for op in ops:
            if op.type not in ("ok", "info"):
                continue
            for key, pairs in op.writes().items():
                first, second = last.get(key), pairs[0][1]
                if first is not None and analysis.order(key).distance(first, second) < 1:
                    yield Finding("nonmonotonic-send", f"{key}: {second} before {first}: {op}", key)
                last[key] = pairs[-1][1]
