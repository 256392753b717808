"""Operations of clients, and their file: one JSON object per line, in the order in which they happened.

    {"time": 1.25, "process": 3, "type": "invoke", "f": "txn", "value": [["send", "a-0", 17], ["poll"]]}
    {"time": 1.31, "process": 3, "type": "ok", "f": "txn",
     "value": [["send", "a-0", [5, 17]], ["poll", {"b-1": [[8, 12], [9, 14]]}]], "rebalanced": []}

A process has one operation at a time. Each has an invocation (`invoke`) and at most one completion: `ok`; `fail`, it
has certainly no effect; `info`, its outcome is unknown. A process ends with an `info`: its worker continues as another
process.

- `txn`: sends and polls, in one transaction. A key is a partition, values are unique within a key. A completed send has
  `[offset, value]`, the offset null if it is unknown. A poll has the offsets and values of each key. `rebalanced` lists
  the keys whose assignment changed meanwhile.
- `assign`, `subscribe`: the value is the list of keys that the process reads from now on (a group may give it fewer).
- `crash`: the client is dropped without closing it.

Offsets need not be contiguous: markers of transactions take some.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Kind = Literal["invoke", "ok", "fail", "info"]
Key = str
Value = int
Pair = tuple[int | None, Value]
"""Offset and value."""


@dataclass(slots=True, eq=False)
class Op:
    """An invocation or a completion."""

    process: int
    type: Kind
    f: str
    value: list[Any] = field(default_factory=list)
    time: float = 0.0
    rebalanced: list[Key] = field(default_factory=list)
    error: str = ""
    index: int = -1
    """The position in the history."""
    invoked_at: int = -1
    """The position of a completion's invocation."""

    def writes(self) -> dict[Key, list[Pair]]:
        """Returns what a completed operation sent, by key and in order."""
        found: dict[Key, list[Pair]] = {}
        if self.f == "txn":
            for step in self.value:
                if step[0] == "send":
                    sent = step[2]
                    pair = (sent[0], sent[1]) if isinstance(sent, list | tuple) else (None, sent)
                    found.setdefault(step[1], []).append(pair)
        return found

    def reads(self) -> dict[Key, list[Pair]]:
        """Returns what a completed operation polled, by key and in order."""
        found: dict[Key, list[Pair]] = {}
        if self.f == "txn":
            for step in self.value:
                if step[0] == "poll" and len(step) > 1:
                    for key, pairs in step[1].items():
                        found.setdefault(key, []).extend((pair[0], pair[1]) for pair in pairs)
        return found

    def __str__(self) -> str:
        return f"#{self.index} process {self.process} {self.type} {self.f} {json.dumps(self.value)[:300]}"


def number_ops(ops: Iterable[Op]) -> list[Op]:
    """Sets the positions of operations. Raises ValueError if a process has two operations at a time."""
    numbered = list(ops)
    running: dict[int, Op] = {}
    for index, op in enumerate(numbered):
        op.index = index
        if op.type == "invoke":
            if op.process in running:
                raise ValueError(f"process {op.process} invokes an operation while another one runs: {op}")
            running[op.process] = op
        else:
            invocation = running.pop(op.process, None)
            if invocation is None or invocation.f != op.f:
                raise ValueError(f"a completion without an invocation: {op}")
            op.invoked_at = invocation.index
    return numbered


def to_json(op: Op) -> str:
    row: dict[str, Any] = {"time": op.time, "process": op.process, "type": op.type, "f": op.f, "value": op.value}
    if op.rebalanced:
        row["rebalanced"] = op.rebalanced
    if op.error:
        row["error"] = op.error
    return json.dumps(row, separators=(",", ":"))


def from_json(line: str) -> Op:
    row = json.loads(line)
    return Op(
        row["process"],
        row["type"],
        row["f"],
        row.get("value") or [],
        row.get("time", 0.0),
        row.get("rebalanced") or [],
        row.get("error", ""),
    )


def read_history(path: Path) -> list[Op]:
    def lines() -> Iterator[Op]:
        with path.open() as file:
            for line in file:
                yield from_json(line)

    return number_ops(lines())


def write_history(path: Path, ops: Iterable[Op]) -> None:
    with path.open("w") as file:
        for op in ops:
            file.write(to_json(op) + "\n")
