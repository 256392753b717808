"""Plants one anomaly each in a valid history. The last phase of the history has everything read by each worker.

A plant returns False if this history has no place for it. New operations come before the final reads, and are of new
processes, so that nothing else changes. Their values are above all others.
"""

import random
from collections.abc import Callable, Iterator
from itertools import count

from tests.jepsen.checker.history import Key, Op
from tests.jepsen.ideal_log import Entry, IdealKafka

Plant = Callable[["History"], bool]
PLANTS: dict[str, Plant] = {}
"""How to plant each anomaly."""


def plants(anomaly: str) -> Callable[[Plant], Plant]:
    def register(plant: Plant) -> Plant:
        PLANTS[anomaly] = plant
        return plant

    return register


class History:
    """A valid history that can be changed."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self._kafka = IdealKafka(seed)
        self.ops = self._kafka.history
        self.keys = self._kafka.keys
        self._new_processes = count(10_000)
        self._new_values = count(1_000_000)

    def new_process(self) -> int:
        return next(self._new_processes)

    def new_value(self) -> int:
        return next(self._new_values)

    def append(self, key: Key) -> tuple[int, int]:
        """Adds a value at the end of a key: all workers read it in the end. Returns its offset and the value."""
        log = self._kafka.logs[key]
        value = self.new_value()
        log.append(Entry(value, 0))
        offset = len(log) - 1
        for reader in {op.process for op in self.final()}:
            self.insert_last(reader, key, offset, value)
        return offset, value

    def insert_last(self, process: int, key: Key, offset: int, value: int) -> None:
        *_, last = (op for op in self.final() if op.process == process)
        last.value[0][1].setdefault(key, []).append([offset, value])

    def final(self) -> list[Op]:
        """The completions of the final reads."""
        return [op for op in self.ops[self._kafka.final_index :] if op.type == "ok" and op.f == "txn"]

    def insert(self, *ops: Op) -> None:
        """Adds invocations and completions before the final reads."""
        place = self._kafka.final_index
        self.ops[place:place] = ops
        self._kafka.final_index += len(ops)

    def transactions(self, kind: str = "ok") -> list[Op]:
        """Completions before the final reads, in random order."""
        found = [op for op in self.ops[: self._kafka.final_index] if op.f == "txn" and op.type == kind]
        self.random.shuffle(found)
        return found

    def polled(self) -> Iterator[tuple[Op, Key, list]]:
        """Returns the pairs of polls that are the only ones of their operation and key."""
        for op in self.transactions():
            polls = [step[1] for step in op.value if step[0] == "poll"]
            for poll in polls:
                for key, pairs in poll.items():
                    if sum(key in each for each in polls) == 1 and key not in op.rebalanced:
                        yield op, key, pairs

    def forget(self, key: Key, value: int) -> None:
        """Removes a value from all polls."""
        for op in self.ops:
            for step in op.value:
                if step[0] == "poll" and len(step) > 1 and key in step[1]:
                    step[1][key][:] = [pair for pair in step[1][key] if pair[1] != value]


def invoke(process: int) -> Op:
    return Op(process, "invoke", "txn", [])


def ok(process: int, *steps: list) -> Op:
    return Op(process, "ok", "txn", list(steps))


def send(key: Key, pair: tuple[int, int]) -> list:
    return ["send", key, list(pair)]


def poll(key: Key, pair: tuple[int, int]) -> list:
    return ["poll", {key: [list(pair)]}]


def one_by_one(*completions: Op) -> list[Op]:
    return [each for completion in completions for each in (invoke(completion.process), completion)]


def at_once(*completions: Op) -> list[Op]:
    return [invoke(completion.process) for completion in completions] + list(completions)


def _values(history: History, key: Key) -> list[tuple[int, int]]:
    return sorted({(pair[0], pair[1]) for op in history.final() for pair in op.reads().get(key, ())})


def _written_by_ok(history: History, key: Key, value: int) -> bool:
    return any(value == pair[1] for op in history.transactions() for pair in op.writes().get(key, ()))


@plants("lost-write")
def lose_write(history: History) -> bool:
    for key in history.keys:
        values = _values(history, key)
        if len(values) > 1 and _written_by_ok(history, key, values[0][1]):
            history.forget(key, values[0][1])  # the first one: nobody skips it between two reads
            return True
    return False


@plants("unseen")
def hide_last_value(history: History) -> bool:
    key = history.random.choice(history.keys)
    values = _values(history, key)
    if not values or not _written_by_ok(history, key, values[-1][1]):
        return False
    history.forget(key, values[-1][1])
    return True


@plants("G1a")
def fail_a_write_that_was_read(history: History) -> bool:
    for op in history.transactions():
        if op.writes() and not op.reads():
            op.type = "fail"
            return True
    return False


@plants("precommitted-read")
def read_own_write(history: History) -> bool:
    key = history.random.choice(history.keys)
    pair = history.append(key)
    process = history.new_process()
    history.insert(*one_by_one(ok(process, send(key, pair), poll(key, pair))))
    return True


@plants("unknown-value")
def read_what_nobody_wrote(history: History) -> bool:
    history.append(history.random.choice(history.keys))
    return True


@plants("inconsistent-offsets")
def read_another_value_at_an_offset(history: History) -> bool:
    key = history.random.choice(history.keys)
    offset, _ = history.append(key)
    first, second = history.new_process(), history.new_process()
    other = history.new_value()
    pair = _values(history, key)[-1]
    history.insert(
        *one_by_one(
            ok(history.new_process(), send(key, pair)),
            Op(first, "info", "txn", [["send", key, other]]),
            ok(second, poll(key, (offset, other))),
        )
    )
    return True


@plants("duplicate")
def read_a_value_at_two_offsets(history: History) -> bool:
    key = history.random.choice(history.keys)
    values = _values(history, key)
    if not values:
        return False
    _, value = history.random.choice(values)
    history.insert(*one_by_one(ok(history.new_process(), poll(key, (values[-1][0] + 100, value)))))
    return True


@plants("poll-skip")
def skip_between_operations(history: History) -> bool:
    for op, key, pairs in history.polled():
        if len(pairs) > 1 and _follows_a_read(history, op, key):
            del pairs[0]
            return True
    return False


@plants("nonmonotonic-poll")
def read_again_between_operations(history: History) -> bool:
    for op, key, pairs in history.polled():
        if pairs and (last := _follows_a_read(history, op, key)):
            pairs.insert(0, list(last))
            return True
    return False


def _follows_a_read(history: History, op: Op, key: Key) -> tuple[int, int] | None:
    """Returns the last pair that the process read, if it assigned the key and read it without an interruption."""
    last: tuple[int, int] | None = None
    assigned = False
    for each in history.ops:
        if each is op:
            return last if assigned else None
        if each.process == op.process and each.type != "invoke":
            if each.f in ("assign", "subscribe"):
                assigned, last = each.f == "assign", None
            elif each.type == "ok" and key in (reads := each.reads()) and reads[key]:
                last = reads[key][-1]
    raise AssertionError("the operation is not in the history")


@plants("int-poll-skip")
def skip_within_an_operation(history: History) -> bool:
    for _, _, pairs in history.polled():
        if len(pairs) > 2:
            del pairs[1]
            return True
    return False


@plants("int-nonmonotonic-poll")
def read_again_within_an_operation(history: History) -> bool:
    for _, _, pairs in history.polled():
        if pairs:
            pairs.append(list(pairs[-1]))
            return True
    return False


@plants("nonmonotonic-send")
def send_backwards_between_operations(history: History) -> bool:
    key = history.random.choice(history.keys)
    lower, higher = history.append(key), history.append(key)
    process = history.new_process()
    history.insert(*one_by_one(ok(process, send(key, higher)), ok(process, send(key, lower))))
    return True


@plants("int-nonmonotonic-send")
def send_backwards_within_an_operation(history: History) -> bool:
    key = history.random.choice(history.keys)
    lower, higher = history.append(key), history.append(key)
    history.insert(*one_by_one(ok(history.new_process(), send(key, higher), send(key, lower))))
    return True


@plants("int-send-skip")
def send_around_another_transaction(history: History) -> bool:
    key = history.random.choice(history.keys)
    first, other, second = history.append(key), history.append(key), history.append(key)
    history.insert(
        *at_once(
            ok(history.new_process(), send(key, first), send(key, second)),
            ok(history.new_process(), send(key, other)),
        )
    )
    return True


def _crossed_writes(history: History, processes: list[int]) -> list[Op]:
    """Four writes: before in the first key is 0 of 1, in the second key 2 of 3."""
    one, two = history.random.sample(history.keys, 2)
    pairs = [
        (one, history.append(one)),
        (one, history.append(one)),
        (two, history.append(two)),
        (two, history.append(two)),
    ]
    return [ok(process, send(*pair)) for process, pair in zip(processes, pairs, strict=True)]


@plants("G0")
def write_in_a_cycle(history: History) -> bool:
    processes = [history.new_process(), history.new_process()]
    a, b, c, d = _crossed_writes(history, [processes[0], processes[1], processes[1], processes[0]])
    history.insert(*at_once(ok(processes[0], *a.value, *d.value), ok(processes[1], *b.value, *c.value)))
    return True


@plants("G0-process")
def write_in_a_cycle_of_processes(history: History) -> bool:
    first, second = history.new_process(), history.new_process()
    a, b, c, d = _crossed_writes(history, [first, second, second, first])
    # a before b, b by the process of c before c, c before d, d before a
    history.insert(invoke(first), d, invoke(second), b, invoke(first), invoke(second), a, c)
    return True


@plants("G0-realtime")
def write_against_time(history: History) -> bool:
    key = history.random.choice(history.keys)
    lower, higher = history.append(key), history.append(key)
    history.insert(
        *one_by_one(ok(history.new_process(), send(key, higher)), ok(history.new_process(), send(key, lower)))
    )
    return True


@plants("G1c")
def read_each_other(history: History) -> bool:
    one, two = history.random.sample(history.keys, 2)
    first, second = history.append(one), history.append(two)
    history.insert(
        *at_once(
            ok(history.new_process(), send(one, first), poll(two, second)),
            ok(history.new_process(), send(two, second), poll(one, first)),
        )
    )
    return True


@plants("G1c-process")
def read_the_future_of_each_other(history: History) -> bool:
    one, two = history.random.sample(history.keys, 2)
    first, second = history.append(one), history.append(two)
    here, there = history.new_process(), history.new_process()
    history.insert(
        invoke(here),
        invoke(there),
        ok(here, poll(two, second)),
        ok(there, poll(one, first)),
        invoke(here),
        invoke(there),
        ok(here, send(one, first)),
        ok(there, send(two, second)),
    )
    return True


@plants("G1c-realtime")
def read_the_future(history: History) -> bool:
    key = history.random.choice(history.keys)
    pair = history.append(key)
    history.insert(*one_by_one(ok(history.new_process(), poll(key, pair)), ok(history.new_process(), send(key, pair))))
    return True
