"""Kills lose no records: a process that writes logs is killed with SIGKILL at random times, repeatedly.

It runs 20 rounds on the same directory; `HEADRACE_KILL_ROUNDS` sets the number, `HEADRACE_SEED` the seed.
"""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.support.storage.log_checks import check_log
from tests.support.storage.log_workload import is_value_of
from tests.support.storage.log_writer import COMPACTED, PLAIN, checksum, open_manager

from headrace.common.types import TopicPartition
from headrace.records import decode_rows
from headrace.storage.log import Log

ROOT = Path(__file__).parents[3]
ROUNDS = int(os.environ.get("HEADRACE_KILL_ROUNDS", "20"))
SEED = int(os.environ.get("HEADRACE_SEED", "20261115"))


@dataclass
class Reported:
    """The expected content of a partition, from the writer's reports."""

    appends: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Base offset → last offset and checksum, in order."""
    lost_from: int | None = None
    """A truncation to this offset had started when the process was killed, and may or may not have completed."""
    trimmed_to: int = 0
    keys: dict[bytes, int] = field(default_factory=dict)
    """In the compacted log: the offset of each key's last value."""

    def append(self, base_offset: int, last_offset: int, crc: int, *keys: int) -> None:
        if self.lost_from is not None:
            # The truncation completed: the log has continued after it.
            self.appends = {base: kept for base, kept in self.appends.items() if kept[0] < self.lost_from}
            self.lost_from = None
        assert not self.appends or base_offset > max(last for last, _ in list(self.appends.values())[-1:])
        self.appends[base_offset] = (last_offset, crc)
        for offset, key in enumerate(keys, base_offset):
            self.keys[b"key-%d" % key] = offset


def run_until_killed(directory: Path, seed: int, random: Random) -> list[str]:
    """Runs the writer and kills it shortly after a random report. Returns its reports."""
    command = [sys.executable, "-m", "tests.support.storage.log_writer", str(directory), str(seed)]
    enough = random.randint(1, 400)
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        lines: list[str] = []
        for line in writer.stdout:
            lines.append(line)
            if len(lines) >= enough:
                break
        # Not a wait for a condition: it varies the time of the kill.
        until = time.perf_counter() + random.uniform(0, 0.004)
        while time.perf_counter() < until:
            pass
        writer.send_signal(signal.SIGKILL)
        lines += writer.stdout
    assert writer.returncode == -signal.SIGKILL, f"the writer ended by itself with {writer.returncode}"
    return [line for line in lines if line.endswith("\n")]


def take_note(reported: dict[TopicPartition, Reported], lines: list[str]) -> None:
    for line in lines:
        what, topic, partition, *numbers = line.split()
        seen = reported[TopicPartition(topic, int(partition))]
        if what == "append":
            seen.append(*map(int, numbers))
        elif what == "cut":
            offset = int(numbers[0])
            seen.lost_from = offset if seen.lost_from is None else min(offset, seen.lost_from)
        else:
            assert what == "trim"
            seen.trimmed_to = int(numbers[0])


def check_plain(log: Log, seen: Reported) -> None:
    """Every append that returned is in the log, in order, once and unchanged."""
    batches = check_log(log)
    assert log.log_start_offset <= seen.trimmed_to
    stored = {batch.base_offset: batch for batch in batches}
    assert len(stored) == len(batches)
    for base_offset, (last_offset, crc) in seen.appends.items():
        if seen.lost_from is not None and last_offset >= seen.lost_from:
            continue
        if last_offset < log.log_start_offset:
            continue
        batch = stored.get(base_offset)
        assert batch is not None, f"offset {base_offset} of {log.tp} is lost"
        assert (batch.last_offset, checksum(batch.raw)) == (last_offset, crc), f"{batch} of {log.tp} is another one"
    for batch in batches:
        assert all(
            is_value_of(record.key, record.value) for record in decode_rows(batch.records()) if not batch.is_control
        )


def check_compacted(
    log: Log, seen: Reported, latest: dict[bytes, tuple[int, bytes | None]]
) -> dict[bytes, tuple[int, bytes | None]]:
    """Each key has its previous value or a newer one, and none older than the last reported one; tombstones
    are retained. Returns the current values."""
    found: dict[bytes, tuple[int, bytes | None]] = {}
    for batch in check_log(log):
        for record in decode_rows(batch.records()):
            assert record.key is not None
            assert is_value_of(record.key, record.value)
            found[record.key] = (record.offset, record.value)
    for key, (offset, value) in latest.items():
        now = found.get(key)
        assert now is not None, f"{key!r} is gone, its value at {offset} was {value!r}"
        assert now[0] > offset or now == (offset, value), f"{key!r} is {now}, it was {(offset, value)}"
    for key, offset in seen.keys.items():
        assert key in found, f"{key!r} is gone, it was reported at {offset}"
        assert found[key][0] >= offset, f"{key!r} is the one of {found[key][0]}, {offset} was reported"
    return found


def settle(reported: Reported, log: Log) -> None:
    """Resolves whether the last truncation completed."""
    if reported.lost_from is not None:
        reported.appends = {
            base: kept
            for base, kept in reported.appends.items()
            if kept[0] < reported.lost_from or kept[0] < log.log_end_offset
        }
        reported.lost_from = None


def test_kills_lose_no_records(tmp_path: Path) -> None:
    print(f"HEADRACE_SEED={SEED}")
    random = Random(SEED)
    reported = {tp: Reported() for tp in (*PLAIN, COMPACTED)}
    latest: dict[bytes, tuple[int, bytes | None]] = {}
    scanned = cleaned = 0
    for number in range(ROUNDS):
        lines = run_until_killed(tmp_path, random.randrange(2**32), random)
        take_note(reported, lines)
        manager = open_manager(tmp_path).start()
        for tp in PLAIN:
            log = manager.get(tp)
            if log is None:
                assert not reported[tp].appends, f"{tp} is lost in round {number}"
                continue
            check_plain(log, reported[tp])
            settle(reported[tp], log)
        compacted = manager.get(COMPACTED)
        if compacted is not None:
            assert compacted.log_end_offset > max(
                [last for last, _ in reported[COMPACTED].appends.values()], default=-1
            )
            latest = check_compacted(compacted, reported[COMPACTED], latest)
            cleaned = max(cleaned, compacted.cleaned_up_to or 0)
        scanned += sum(each.scanned_bytes for each in manager.load_reports.values())
        if random.random() < 0.3:
            manager.close()
        else:
            manager.abandon()
    assert scanned > 0, "no round needed recovery"
    assert cleaned > 0, "no round compacted anything"
