"""One worker process: runs random operations until a file appears, and writes each into its own part of the history.

    python -m tests.jepsen.run.worker --client confluent --bootstrap ... --keys t0-0,t0-1 --process 1003 --seed 5
        --history worker-3.jsonl --stop stop-file [--final]

It ends after an operation with an unknown outcome, or with a broken client: its parent starts another one. With
`--final` it assigns all keys and reads from the beginning up to their ends, and exits with 1 if that takes too long.
"""

import argparse
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import confluent_kafka as confluent
from tests.jepsen.checker.history import Op, to_json
from tests.jepsen.run.clients import BEGINNING, CLIENTS, END, Aborted, Client, Sent, Unknown, split

VALUES_PER_PROCESS = 1_000_000
MAX_STEPS = 4
SUBSCRIBE_SHARE = 1 / 24
"""How many operations subscribe or assign."""
ABORT_SHARE = 0.1
POLL_SECONDS = 0.1
FINAL_SECONDS = 240.0


class Recorder:
    """Appends operations to a file, each with one write: a killed process leaves whole lines."""

    def __init__(self, path: Path, process: int):
        self._file = path.open("ab", buffering=0)
        self._process = process

    def write(self, kind: Any, f: str, value: list[Any], rebalanced: list[str] | None = None, error: str = "") -> None:
        op = Op(self._process, kind, f, value, time.monotonic(), rebalanced or [], error[:200])
        self._file.write((to_json(op) + "\n").encode())


class Worker:
    def __init__(self, client: Client, keys: list[str], recorder: Recorder, seed: int, first_value: int):
        self._client = client
        self._keys = keys
        self._record = recorder.write
        self._random = random.Random(seed)
        self._next_value = first_value
        self._positions: dict[str, int] = {}
        """Where a process that assigns goes on: after its last successful operation."""
        self._subscribes = False

    def run(self, stop: Path) -> None:
        self._choose_keys()
        while not stop.exists():
            if self._random.random() < SUBSCRIBE_SHARE:
                self._choose_keys()
            elif not self._run_transaction():
                return
            time.sleep(self._random.random() * 0.05)

    # ---- assign and subscribe

    def _choose_keys(self) -> None:
        chosen = self._random.sample(self._keys, self._random.randint(1, len(self._keys)))
        if self._random.random() < 0.3:
            topics = sorted({split(key)[0] for key in chosen})
            value = [key for key in self._keys if split(key)[0] in topics]
            self._record("invoke", "subscribe", value)
            self._client.subscribe(topics)
            self._positions = {}
            self._subscribes = True
            self._record("ok", "subscribe", value)
        else:
            self._record("invoke", "assign", chosen)
            new = BEGINNING if self._random.random() < 0.2 else END
            self._positions = {key: self._positions.get(key, new) for key in chosen}
            self._client.assign(self._positions)
            self._subscribes = False
            self._record("ok", "assign", chosen)

    # ---- transactions

    def _run_transaction(self) -> bool:
        """Returns False if the client cannot be used any more."""
        steps = [self._choose_step() for _ in range(self._random.randint(1, MAX_STEPS))]
        self._record("invoke", "txn", steps)
        done: list[list[Any]] = []
        kind, error, goes_on = "ok", "", True
        try:
            self._run_steps(steps, done)
        except Aborted as aborted:
            kind, error, goes_on = "fail", str(aborted), not aborted.is_broken
        except Unknown as unknown:
            kind, error, goes_on = "info", str(unknown), False
        done += [step for step in steps[len(done) :] if step[0] == "send"]
        value = [_completed(step) for step in done]
        self._record(kind, "txn", value, self._client.rebalanced(), error)
        if not self._subscribes:
            if kind == "ok":
                self._advance(value)
            elif goes_on:
                self._client.assign(self._positions)
        return goes_on

    def _choose_step(self) -> list[Any]:
        if self._random.random() < 0.5:
            return ["poll"]
        self._next_value += 1
        return ["send", self._random.choice(self._keys), self._next_value]

    def _run_steps(self, steps: list[list[Any]], done: list[list[Any]]) -> None:
        waits = self._random.random() < 0.5
        self._client.begin()
        for step in steps:
            if step[0] == "poll":
                done.append(["poll", self._client.poll(POLL_SECONDS)])
            else:
                _, key, value = step
                sent = self._client.send(key, value)
                done.append(["send", key, value, sent])
                if waits:
                    self._client.flush()
        self._client.flush()
        if self._subscribes and (read := _next_offsets(done)):
            self._client.send_offsets(read)
        if self._random.random() < ABORT_SHARE:
            self._client.abort()
            raise Aborted("on purpose")
        self._client.commit()

    def _advance(self, value: list[list[Any]]) -> None:
        self._positions.update(_next_offsets(value))


def _next_offsets(done: list[list[Any]]) -> dict[str, int]:
    return {key: pairs[-1][0] + 1 for step in done if step[0] == "poll" for key, pairs in step[1].items()}


def _completed(step: list[Any]) -> list[Any]:
    if step[0] == "send" and len(step) == 4:
        sent: Sent = step[3]
        return ["send", step[1], [sent.offset, step[2]]]
    return step


def read_everything(bootstrap: str, client: Client, keys: list[str], recorder: Recorder) -> bool:
    """Returns True if the client has read up to the ends that the keys had in the beginning. Offsets of markers and of
    aborted records are never read: a key is also done if a record after them is."""
    ends = _last_committed(bootstrap, keys)
    recorder.write("invoke", "assign", keys)
    client.assign(dict.fromkeys(keys, BEGINNING))
    recorder.write("ok", "assign", keys)
    missing = {key: offset for key, offset in ends.items() if offset >= 0}
    deadline = time.monotonic() + FINAL_SECONDS
    while missing and time.monotonic() < deadline:
        recorder.write("invoke", "txn", [["poll"]])
        found = client.poll(1.0)
        recorder.write("ok", "txn", [["poll", found]])
        for key, pairs in found.items():
            if pairs[-1][0] >= missing.get(key, -1):
                missing.pop(key, None)
    return not missing


def _last_committed(bootstrap: str, keys: list[str]) -> dict[str, int]:
    """Returns the offset of the last committed record of each key, found by another consumer. Open transactions end by
    their timeout first."""
    consumer = confluent.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "ends",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    deadline = time.monotonic() + FINAL_SECONDS
    last = dict.fromkeys(keys, -1)
    try:
        ends = _ends(bootstrap, keys, deadline)
        waiting = set(keys)
        consumer.assign([confluent.TopicPartition(*split(key), confluent.OFFSET_BEGINNING) for key in keys])
        while waiting and time.monotonic() < deadline:
            for message in consumer.consume(1000, 1.0):
                key, error = f"{message.topic()}-{message.partition()}", message.error()
                if error is None:
                    last[key] = message.offset() or 0
                elif error.code() == confluent.KafkaError._PARTITION_EOF and (message.offset() or 0) >= ends[key]:
                    waiting.discard(key)
        if waiting:
            print(f"the ends of {sorted(waiting)} cannot be read: a transaction is open", file=sys.stderr)
        return last
    finally:
        consumer.close()


def _ends(bootstrap: str, keys: list[str], deadline: float) -> dict[str, int]:
    """Returns the high watermarks."""
    consumer = confluent.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "ends", "isolation.level": "read_uncommitted", "log_level": 0}
    )
    ends: dict[str, int] = {}
    try:
        while len(ends) < len(keys):
            try:
                for key in keys:
                    _, end = consumer.get_watermark_offsets(confluent.TopicPartition(*split(key)), timeout=5.0)
                    ends[key] = int(end)
            except confluent.KafkaException:
                if time.monotonic() > deadline:
                    raise
        return ends
    finally:
        consumer.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--client", choices=CLIENTS, required=True)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--keys", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--process", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--history", type=Path, required=True)
    parser.add_argument("--stop", type=Path, required=True)
    parser.add_argument("--final", action="store_true")
    options = parser.parse_args()
    keys = options.keys.split(",")
    recorder = Recorder(options.history, options.process)
    client = CLIENTS[options.client](options.bootstrap, options.name, "jepsen")
    if options.final:
        os._exit(not read_everything(options.bootstrap, client, keys, recorder))
    Worker(client, keys, recorder, options.seed, options.process * VALUES_PER_PROCESS).run(options.stop)
    os._exit(0)  # without closing the client


if __name__ == "__main__":
    main()
