"""Judges recorded histories of clients that send and poll, by the anomalies of Jepsen's checker for Kafka.

    verdict = check(read_history(path))
    verdict.is_valid, verdict.findings

`python -m tests.jepsen.checker history.jsonl` prints the verdict of a file.
"""

from tests.jepsen.checker.findings import ANOMALIES, Finding
from tests.jepsen.checker.history import Op, read_history, write_history
from tests.jepsen.checker.verdict import Verdict, check

__all__ = ["ANOMALIES", "Finding", "Op", "Verdict", "check", "read_history", "write_history"]
