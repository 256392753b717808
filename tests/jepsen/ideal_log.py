"""Valid histories of a random workload on an ideal Kafka in memory, for tests of the checker.

Transactions of several processes run at the same time, step by step. Sends get the next offset of their key,
transactions end with markers, polls return committed values up to the first open transaction. Some transactions abort,
some have an unknown outcome, processes crash, assign and subscribe. In the end each worker reads everything by
assignment.
"""

import random
from dataclasses import dataclass, field
from typing import Any

from tests.jepsen.checker.history import Key, Op, Value

POLL_RECORDS = 3
FINAL_RECORDS = 40


@dataclass
class Entry:
    """What is at an offset: a value, or a marker."""

    value: Value | None
    transaction: int
    """0: none."""


@dataclass
class Worker:
    process: int
    op: Op | None = None
    steps: list[list[Any]] = field(default_factory=list)
    done: list[list[Any]] = field(default_factory=list)
    transaction: int = 0
    touched: set[Key] = field(default_factory=set)
    positions: dict[Key, int] = field(default_factory=dict)
    positions_before: dict[Key, int] = field(default_factory=dict)
    subscribes: bool = False
    rebalanced: list[Key] = field(default_factory=list)
    has_crashed: bool = False


class IdealKafka:
    """One run. `history` is what the workers recorded."""

    def __init__(self, seed: int, *, operations: int = 150, workers: int = 4, keys: int = 3):
        self._random = random.Random(seed)
        self.keys = [f"t-{number}" for number in range(keys)]
        self.history: list[Op] = []
        self.logs: dict[Key, list[Entry]] = {key: [] for key in self.keys}
        self.final_index = 0
        """The position in the history where the final reads begin."""
        self._open: set[int] = set()
        self._aborted: set[int] = set()
        self._group: dict[Key, int] = dict.fromkeys(self.keys, 0)
        self._workers = [Worker(number) for number in range(workers)]
        self._next_process = workers
        self._next_value = self._next_transaction = 1
        while len(self.history) < 2 * operations:
            self._advance(self._random.choice(self._workers))
        for worker in self._workers:
            while worker.op is not None:
                self._advance(worker)
        self.final_index = len(self.history)
        for worker in self._workers:
            self._read_everything(worker)

    # ---- operations

    def _advance(self, worker: Worker) -> None:
        if worker.op is None:
            self._invoke(worker)
        elif worker.op.f != "txn":
            self._complete_other(worker)
        elif worker.steps:
            self._step(worker)
        else:
            self._end(worker)

    def _invoke(self, worker: Worker) -> None:
        luck = self._random.random()
        if not worker.positions or luck < 0.1:
            chosen = self._random.sample(self.keys, self._random.randint(1, len(self.keys)))
            worker.op = Op(worker.process, "invoke", self._random.choice(("assign", "assign", "subscribe")), chosen)
        elif luck < 0.13:
            worker.op = Op(worker.process, "invoke", "crash")
        else:
            worker.steps = [self._random_step() for _ in range(self._random.randint(1, 4))]
            worker.done = []
            worker.transaction, self._next_transaction = self._next_transaction, self._next_transaction + 1
            self._open.add(worker.transaction)
            worker.positions_before = dict(worker.positions)
            worker.op = Op(worker.process, "invoke", "txn", [list(step) for step in worker.steps])
        self.history.append(worker.op)

    def _random_step(self) -> list[Any]:
        if self._random.random() < 0.5:
            return ["poll"]
        self._next_value += 1
        return ["send", self._random.choice(self.keys), self._next_value]

    def _complete(self, worker: Worker, kind: str, value: list[Any]) -> None:
        assert worker.op is not None
        self.history.append(Op(worker.process, kind, worker.op.f, value, rebalanced=worker.rebalanced))
        worker.op = None
        worker.rebalanced = []
        if kind == "info":
            worker.process, self._next_process = self._next_process, self._next_process + 1
            worker.positions = {}
            worker.subscribes = False

    def _complete_other(self, worker: Worker) -> None:
        assert worker.op is not None
        keys = worker.op.value
        if worker.op.f == "crash":
            self._complete(worker, "info", [])
            return
        if worker.op.f == "assign":
            worker.positions = {key: worker.positions.get(key, 0) for key in keys}
        else:
            worker.positions = {key: self._group[key] for key in keys}
        worker.subscribes = worker.op.f == "subscribe"
        self._complete(worker, "ok", keys)

    def _step(self, worker: Worker) -> None:
        step = worker.steps.pop(0)
        if step[0] == "send":
            _, key, value = step
            worker.touched.add(key)
            self.logs[key].append(Entry(value, worker.transaction))
            worker.done.append(["send", key, [len(self.logs[key]) - 1, value]])
        else:
            if worker.subscribes and self._random.random() < 0.3:
                key = self._random.choice(list(worker.positions))
                worker.positions[key] = self._group[key]
                worker.rebalanced = [*worker.rebalanced, key]
            worker.done.append(["poll", self._poll(worker, POLL_RECORDS)])

    def _poll(self, worker: Worker, records: int) -> dict[Key, list[list[int]]]:
        found: dict[Key, list[list[int]]] = {}
        for key in worker.positions:
            position, log = worker.positions[key], self.logs[key]
            while position < len(log) and log[position].transaction not in self._open:
                entry = log[position]
                if entry.value is not None and entry.transaction not in self._aborted:
                    if len(found.get(key, ())) == records:
                        break
                    found.setdefault(key, []).append([position, entry.value])
                position += 1
            worker.positions[key] = position
        return found

    def _end(self, worker: Worker) -> None:
        luck = self._random.random()
        commits = luck < 0.8 or (luck >= 0.9 and self._random.random() < 0.5)
        kind = "ok" if luck < 0.8 else "fail" if luck < 0.9 else "info"
        self._open.discard(worker.transaction)
        if not commits:
            self._aborted.add(worker.transaction)
        for key in sorted(worker.touched):
            self.logs[key].append(Entry(None, 0))
        worker.touched = set()
        done = worker.done
        if kind == "info" and self._random.random() < 0.5:  # the worker does not know the offsets
            done = [[*step[:2], step[2][1]] if step[0] == "send" else step for step in done]
        if commits and worker.subscribes:
            self._group.update(worker.positions)
        if kind == "fail":
            worker.positions = worker.positions_before
        self._complete(worker, kind, done)

    def _read_everything(self, worker: Worker) -> None:
        worker.op = Op(worker.process, "invoke", "crash")
        self.history.append(worker.op)
        self._complete(worker, "info", [])
        worker.op = Op(worker.process, "invoke", "assign", self.keys)
        self.history.append(worker.op)
        self._complete(worker, "ok", self.keys)
        worker.positions = dict.fromkeys(self.keys, 0)
        while True:
            worker.op = Op(worker.process, "invoke", "txn", [["poll"]])
            self.history.append(worker.op)
            read = self._poll(worker, FINAL_RECORDS)
            self._complete(worker, "ok", [["poll", read]])
            if not read:
                return
