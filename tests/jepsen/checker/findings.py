"""What the checker can find: the anomalies, and those that Kafka's model allows."""

from dataclasses import dataclass

ANOMALIES = {
    "lost-write": "a committed value was never read, although a later one of its key was",
    "G1a": "a value of an aborted transaction was read",
    "precommitted-read": "a transaction read what it wrote itself",
    "unknown-value": "a value was read that nobody wrote",
    "inconsistent-offsets": "one offset has several values",
    "duplicate": "one value has several offsets",
    "unseen": "an acknowledged value was never read, up to the end",
    "poll-skip": "a process skipped values between two operations",
    "nonmonotonic-poll": "a process read backwards between two operations",
    "int-poll-skip": "an operation skipped values between two of its reads",
    "int-nonmonotonic-poll": "an operation read backwards",
    "nonmonotonic-send": "a process's later send has a lower offset",
    "int-nonmonotonic-send": "an operation's later send has a lower offset",
    "int-send-skip": "other values are between two sends of an operation",
    "G0": "transactions wrote over each other in a cycle",
    "G0-process": "like G0, with the order of operations in each process",
    "G0-realtime": "like G0, with the order of operations in real time",
    "G1c": "transactions depend on each other's writes and reads in a cycle",
    "G1c-process": "like G1c, with the order of operations in each process",
    "G1c-realtime": "like G1c, with the order of operations in real time",
}
"""Every anomaly, with its meaning."""

ALLOWED = {"int-send-skip", "G0", "G0-process", "G0-realtime"}
"""Kafka isolates no writes: records of concurrent transactions are mixed in the log. G1c is allowed where the cycle
needs a write-write dependency, and skips between operations where a group assigns the partitions."""


@dataclass(frozen=True)
class Finding:
    """One anomaly. An allowed one is reported, and does not make a history invalid."""

    anomaly: str
    text: str
    key: str = ""
    is_allowed: bool = False
