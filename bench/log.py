"""Compares the log with plain system calls: appends with `os.write`, and cold reads through a slice with `os.sendfile`.

Also measures how the time to open the logs grows with the number of partitions.
"""

import os
import random
import socket
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from bench.harness import Measurement, compare, seconds_of
from headrace.common.types import Buffer, TopicPartition
from headrace.records import BatchBuilder
from headrace.storage.config import LogConfig, ManagerConfig
from headrace.storage.files import DataFile, FileSystem
from headrace.storage.loader import open_log
from headrace.storage.log import Log, LogContext
from headrace.storage.manager import LogManager

TIMESTAMP = 1_700_000_000_000
TP = TopicPartition("bench", 0)
CONFIG = LogConfig.from_properties({"max.message.bytes": 16 * 1024 * 1024})


def make_batch(batch_bytes: int) -> bytearray:
    builder = BatchBuilder(size_hint=batch_bytes + 2048)
    value = random.Random(1).randbytes(1000)
    while builder.size_in_bytes + 1020 <= batch_bytes:
        builder.append(None, value, TIMESTAMP)
    return builder.build()


def open_bench_log(directory: Path) -> Log:
    return open_log(directory, TP, CONFIG, LogContext())[0]


def bench_append(directory: Path, batch_bytes: int, label: str, target: float, rounds: int) -> Measurement:
    """Measures appends. Both sides write the same bytes to a new file, which is deleted before the next measurement."""
    batch = make_batch(batch_bytes)
    times = 64 * 1024 * 1024 // len(batch)

    def ours() -> float:
        log = open_bench_log(directory / "ours")

        def append_all() -> None:
            append = log.append_as_leader
            for _ in range(times):
                append(batch, 0)

        seconds = seconds_of(append_all)
        log.abandon()
        FileSystem().remove_tree(directory / "ours")
        return seconds

    def theirs() -> float:
        path = directory / "theirs"
        fd = os.open(path, os.O_RDWR | os.O_CREAT)

        def write_all() -> None:
            for _ in range(times):
                os.write(fd, batch)

        seconds = seconds_of(write_all)
        os.close(fd)
        path.unlink()
        return seconds

    return compare(
        f"append, {label} batches of 1 KB records",
        peer="os.write",
        ours=ours,
        theirs=theirs,
        work=times * len(batch) / 1e6,
        unit="MB/s",
        target=target,
        rounds=rounds,
    )


class Sink:
    """A loopback connection whose other end discards everything that it reads."""

    def __init__(self) -> None:
        with closing(socket.create_server(("127.0.0.1", 0))) as server:
            self.near = socket.create_connection(server.getsockname())
            self._far = server.accept()[0]
        self._thread = threading.Thread(target=self._drain)
        self._thread.start()

    def _drain(self) -> None:
        buffer = bytearray(1024 * 1024)
        while self._far.recv_into(buffer):
            pass

    def close(self) -> None:
        self.near.close()
        self._thread.join()
        self._far.close()


def drop_from_page_cache(path: Path) -> None:
    """Drops a file from the page cache, so that the next read goes to the disk."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def bench_cold_read(directory: Path, rounds: int) -> Measurement:
    log = open_bench_log(directory / "cold")
    batch = make_batch(1024 * 1024)
    for _ in range(128):
        log.append_as_leader(batch, 0)
    log.flush()
    path = log.segments.active.path()
    size = log.size_in_bytes
    sink = Sink()

    def ours() -> float:
        drop_from_page_cache(path)

        def send_all() -> None:
            found = log.read(0, size).slice
            assert found is not None
            sent, fd = 0, sink.near.fileno()
            while sent < len(found):
                sent += found.send_to(fd, sent)

        return seconds_of(send_all)

    def theirs() -> float:
        drop_from_page_cache(path)

        def send_all() -> None:
            with path.open("rb") as file:
                sent, fd = 0, sink.near.fileno()
                while sent < size:
                    sent += os.sendfile(fd, file.fileno(), sent, size - sent)

        return seconds_of(send_all)

    try:
        return compare(
            "cold read of a segment through the slice",
            peer="os.sendfile",
            ours=ours,
            theirs=theirs,
            work=size / 1e6,
            unit="MB/s",
            target=0.9,
            rounds=rounds,
        )
    finally:
        sink.close()
        log.abandon()


class CountingFileSystem(FileSystem):
    """Counts the bytes that are read from log files. Does not sync, because only opening is measured."""

    def __init__(self) -> None:
        self.log_bytes_read = 0

    def open(self, path: Path, create: bool = False) -> DataFile:
        if path.suffix == ".log" and not create:
            return _CountedFile(path, os.open(path, os.O_RDWR | os.O_CLOEXEC), self)
        return super().open(path, create)

    def sync_directory(self, path: Path) -> None:
        pass

    def write_atomically(self, path: Path, data: Buffer, sync: bool = True) -> None:  # noqa: ARG002
        super().write_atomically(path, data, sync=False)


class _CountedFile(DataFile):
    __slots__ = ("_counter",)

    def __init__(self, path: Path, fd: int, counter: CountingFileSystem):
        super().__init__(path, fd)
        self._counter = counter

    def read_at(self, size: int, position: int) -> bytes:
        self._counter.log_bytes_read += size
        return super().read_at(size, position)


def _manager(directory: Path, files: FileSystem) -> LogManager:
    config = ManagerConfig.from_properties({"log.dirs": str(directory)})
    return LogManager(config, config_of=lambda _: CONFIG, cluster_id="bench", files=files)


def _fill(directory: Path, partitions: int) -> None:
    batch = make_batch(16 * 1024)
    with _manager(directory, CountingFileSystem()) as manager:
        for number in range(partitions):
            manager.create(TopicPartition("bench", number)).append_as_leader(batch, 0)
            if number % 500 == 499:
                for log in manager:
                    log.segments.active.release()  # limits the open file descriptors


def bench_open(directory: Path, rounds: int) -> tuple[Measurement, str]:
    """Compares opening 10,000 partitions with ten times the time to open 1,000. A ratio of 1 is linear."""
    few, many = 1_000, 10_000
    for count in (few, many):
        _fill(directory / str(count), count)
    read: list[int] = []

    def open_all(count: int) -> Callable[[], float]:
        def measure() -> float:
            files = CountingFileSystem()
            manager = _manager(directory / str(count), files)
            seconds = seconds_of(manager.start)
            if len(manager) != count or any(report.scanned_bytes for report in manager.load_reports.values()):
                raise AssertionError(
                    f"opened {len(manager)} of {count} partitions, or scanned segments in spite of the clean shutdown"
                )
            manager.close()
            read.append(files.log_bytes_read)
            return seconds

        return measure

    open_few, open_many = open_all(few), open_all(many)
    measured = compare(
        f"open {many:,} partitions after a clean stop",
        peer=f"{many // few} x opening {few:,}",
        ours=open_many,
        theirs=lambda: open_few() * (many // few),
        work=many / 1000,
        unit="k/s",
        target=0.8,
        rounds=rounds,
    )
    return measured, f"Opening the logs {len(read)} times read {sum(read)} bytes of log data in total."


def run(directory: Path, rounds: int) -> tuple[list[Measurement], list[str]]:
    measurements = [
        bench_append(directory, 1024 * 1024, "1 MB", 0.5, rounds),
        bench_append(directory, 16 * 1024, "16 KB", 0.25, rounds),
        bench_cold_read(directory, rounds),
    ]
    opened, note = bench_open(directory, max(3, rounds // 3))
    return [*measurements, opened], [note]
