"""A tour of the log: write a million records, read them by offset and by timestamp, kill the writer, recover.

    python examples/log_tour.py [--records 1000000] [--directory DIR]

A separate process writes the records and is killed with SIGKILL while it is writing. Every step checks its result; the
table at the end shows how much was done and how fast.
"""

import argparse
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from headrace.common.types import TopicPartition
from headrace.records import BatchBuilder, Compression, split_batches
from headrace.records.arrow import decode_arrow
from headrace.storage.config import LogConfig, ManagerConfig
from headrace.storage.log import Log
from headrace.storage.manager import LogManager

TP = TopicPartition("tour", 0)
RECORDS_PER_BATCH = 1000
FIRST_TIMESTAMP = 1_700_000_000_000
VALUE = struct.Struct(">q92x")
SEGMENT_BYTES = 64 * 1024 * 1024


def open_manager(directory: Path) -> LogManager:
    config = LogConfig.from_properties(
        {"segment.bytes": SEGMENT_BYTES, "retention.ms": -1, "message.timestamp.before.max.ms": 2**62}
    )
    manager_config = ManagerConfig.from_properties({"log.dirs": str(directory)})
    return LogManager(manager_config, config_of=lambda _: config, cluster_id="tour")


def make_batch(first: int) -> bytearray:
    """Returns a batch of records numbered from `first`, one per millisecond, with the number in key and value."""
    builder = BatchBuilder(codec=Compression.NONE, size_hint=160 * RECORDS_PER_BATCH)
    for number in range(first, first + RECORDS_PER_BATCH):
        builder.append(b"%d" % number, VALUE.pack(number), FIRST_TIMESTAMP + number)
    return builder.build()


def write_until_killed(directory: Path) -> None:
    """Runs in the writer process: prints the number of records in the log after each append."""
    log = open_manager(directory).start().create(TP)
    while True:
        result = log.append_as_leader(make_batch(log.log_end_offset), leader_epoch=0)
        print(result.last_offset + 1, flush=True)


def run_writer(directory: Path, records: int) -> int:
    """Runs the writer until it has acknowledged enough records, and kills it while it writes."""
    command = [sys.executable, __file__, "--write-to", str(directory)]
    acknowledged = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for line in writer.stdout:
            acknowledged = int(line)
            if acknowledged % 100_000 == 0:
                print(f"\r  writing ... {acknowledged:,} records", end="", file=sys.stderr, flush=True)
            if acknowledged >= records:
                break
        writer.send_signal(signal.SIGKILL)
        # Include what it acknowledged before it received the signal.
        acknowledged = max([acknowledged, *(int(line) for line in writer.stdout if line.endswith("\n"))])
    print(file=sys.stderr)
    if writer.returncode != -signal.SIGKILL:
        sys.exit(f"the writer exited before the kill, with exit code {writer.returncode}")
    return acknowledged


def read_all(log: Log) -> int:
    """Reads the whole log into Arrow columns and checks the order."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        found = log.read(offset, 4 * 1024 * 1024).slice
        assert found is not None
        batches = split_batches(found.read(), allow_partial=True)
        for batch in batches:
            batch.check_crc()
        table = decode_arrow(batches, min_offset=offset)
        assert table["offset"][0].as_py() == offset
        assert table["key"][0].as_py() == b"%d" % offset
        offset += table.num_rows
    return offset - log.log_start_offset


def read_at_random(log: Log, times: int) -> int:
    chooser = random.Random(7)
    for _ in range(times):
        offset = chooser.randrange(log.log_end_offset)
        found = log.read(offset, 1).slice
        assert found is not None
        records = found.batches()[0].records()
        assert records.value(offset - found.base_offset) == VALUE.pack(offset)
    return times


def look_up_times(log: Log, times: int) -> int:
    chooser = random.Random(8)
    for _ in range(times):
        offset = chooser.randrange(log.log_end_offset)
        assert log.find_timestamp(FIRST_TIMESTAMP + offset) == (FIRST_TIMESTAMP + offset, offset)
    return times


class Table:
    """The steps, with their results and durations."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, str, str]] = [("step", "result", "seconds", "per second")]

    def time(self, step: str, what: str, action: Callable[[], int]) -> int:
        started = time.perf_counter()
        count = action()
        seconds = time.perf_counter() - started
        self.rows.append((step, what.format(count), f"{seconds:.2f}", f"{count / seconds:,.0f}"))
        return count

    def __str__(self) -> str:
        widths = [max(map(len, column)) for column in zip(*self.rows, strict=True)]
        lines = [
            f"{row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]:>{widths[3]}}"
            for row in self.rows
        ]
        rule = "  ".join("-" * width for width in widths)
        return "\n".join([lines[0], rule, *lines[1:]])


def tour(directory: Path, records: int) -> None:
    table = Table()
    acknowledged = table.time(
        "write", "{:,} records acknowledged, then SIGKILL", lambda: run_writer(directory, records)
    )

    manager = open_manager(directory)
    opened: list[Log] = []

    def recover() -> int:
        log = manager.start().get(TP)
        assert log is not None
        opened.append(log)
        return manager.load_reports[TP].scanned_bytes

    scanned = table.time("recover", "{:,} bytes scanned after the recovery point", recover)
    log, report = opened[0], manager.load_reports[TP]
    assert log.log_end_offset >= acknowledged, "an acknowledged record was lost"

    table.time("read all", "{:,} records in order, CRCs checked, as Arrow columns", lambda: read_all(log))
    table.time("read by offset", "{:,} batches at random offsets", lambda: read_at_random(log, 10_000))
    table.time("read by time", "{:,} look-ups of random timestamps", lambda: look_up_times(log, 10_000))
    size, segments, end_offset = log.size_in_bytes, len(log.segments), log.log_end_offset
    manager.close()

    manager = open_manager(directory)
    table.time("reopen", "{:,} log after a clean shutdown, nothing scanned", lambda: len(manager.start()))
    assert manager.load_reports[TP].scanned_bytes == 0
    manager.close()

    print(table)
    print(
        f"\n{end_offset:,} records in {segments} segments, {size:,} bytes; {acknowledged:,} were acknowledged before "
        f"the kill, and none is lost.\nRecovery scanned {scanned:,} bytes and truncated {report.truncated_bytes:,}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Write, read, kill and recover a partition.")
    parser.add_argument(
        "--records", type=int, default=1_000_000, help="number of records to write (default: a million)"
    )
    parser.add_argument("--directory", type=Path, help="empty directory for the log (default: a temporary directory)")
    parser.add_argument("--write-to", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write_to is not None:
        write_until_killed(arguments.write_to)
    elif arguments.directory is not None:
        if arguments.directory.exists() and any(arguments.directory.iterdir()):
            parser.error(f"--directory: {arguments.directory} is not empty")
        tour(arguments.directory, arguments.records)
    else:
        with tempfile.TemporaryDirectory(prefix="headrace-tour-") as directory:
            tour(Path(directory), arguments.records)


if __name__ == "__main__":
    main()
