"""Writes to logs until it is killed, and reports every step: `python -m tests.support.storage.log_writer DIR SEED`.

Each line on standard output reports one step, and is written before the next step begins:

    append TOPIC PARTITION BASE LAST CHECKSUM    an append has returned; to the compacted log, with NUMBER OF KEY...
    cut TOPIC PARTITION OFFSET                   a truncation is about to begin
    trim TOPIC PARTITION OFFSET                  records below the offset are about to be deleted

Logs have tiny segments, so that rolls, flushes and deletions happen all the time; the compacted one is cleaned in a
background thread meanwhile.
"""

import sys
from pathlib import Path
from random import Random
from zlib import crc32

from tests.support.storage.log_workload import Mix, random_append

from headrace.common.background import ThreadRunner
from headrace.common.types import TopicPartition
from headrace.records import BATCH_HEADER_BYTES, RecordBatch, decode_rows
from headrace.storage.config import LogConfig, ManagerConfig
from headrace.storage.log import Log
from headrace.storage.manager import LogManager

PLAIN = [TopicPartition("plain", number) for number in range(3)]
COMPACTED = TopicPartition("compacted", 0)
PLAIN_MIX = Mix(largest_value_bytes=2000)
COMPACTED_MIX = Mix(keys=30, tombstones=0.1, transactional=0.0, idempotent=0.3)
_SMALL = {"segment.bytes": 16 * 1024, "index.interval.bytes": 512, "file.delete.delay.ms": 20, "retention.ms": -1}
_CONFIGS = {
    "plain": LogConfig.from_properties(_SMALL),
    "compacted": LogConfig.from_properties(
        {**_SMALL, "segment.bytes": 4 * 1024, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.1}
    ),
}


def open_manager(directory: Path, runner: ThreadRunner | None = None) -> LogManager:
    every_moment = dict.fromkeys(
        (
            "log.flush.offset.checkpoint.interval.ms",
            "log.flush.start.offset.checkpoint.interval.ms",
            "log.retention.check.interval.ms",
            "log.cleaner.backoff.ms",
        ),
        5,
    )
    settings = ManagerConfig.from_properties(
        {"log.dirs": f"{directory}/a,{directory}/b", "log.initial.task.delay.ms": 0, **every_moment}
    )
    return LogManager(settings, config_of=_CONFIGS.__getitem__, cluster_id="kill", runner=runner)


def checksum(batch: bytes | bytearray | memoryview) -> int:
    """Returns a checksum of a batch's records, which the log does not change."""
    return crc32(memoryview(batch)[BATCH_HEADER_BYTES:])


def key_numbers(batch: bytearray) -> list[int]:
    rows = decode_rows(RecordBatch(batch).records())
    return [int(row.key.removeprefix(b"key-")) for row in rows if row.key is not None]


def report(what: str, tp: TopicPartition, *numbers: int) -> None:
    sys.stdout.write(f"{what} {tp.topic} {tp.partition} {' '.join(map(str, numbers))}\n")
    sys.stdout.flush()


def step(log: Log, random: Random, epoch: int) -> None:
    chance = random.random()
    if log.tp.topic == "plain" and chance < 0.01 and log.log_end_offset > log.log_start_offset:
        offset = random.randint(max(log.log_start_offset, log.log_end_offset - 20), log.log_end_offset)
        report("cut", log.tp, offset)
        log.truncate_to(offset)
    elif log.tp.topic == "plain" and chance < 0.02:
        offset = random.randint(log.log_start_offset, max(log.log_start_offset, log.log_end_offset - 200))
        report("trim", log.tp, offset)
        log.delete_records(offset)
    elif chance < 0.05:
        log.flush()
    else:
        batch, origin = random_append(log, random, PLAIN_MIX if log.tp.topic == "plain" else COMPACTED_MIX)
        result = log.append_as_leader(batch, epoch, origin)
        keys = key_numbers(batch) if log.config.compact else []
        report("append", log.tp, result.base_offset, result.last_offset, checksum(batch), *keys)
    log.update_high_watermark(log.log_end_offset)


def main(directory: Path, seed: int) -> None:
    random = Random(seed)
    runner = ThreadRunner()
    manager = open_manager(directory, runner).start()
    logs = [manager.create(tp) for tp in (*PLAIN, COMPACTED)]
    for log in logs:
        log.update_high_watermark(log.log_end_offset)
    epoch = max(log.epochs.latest_epoch for log in logs) + 1
    while True:
        step(random.choice(logs), random, epoch)
        runner.drain()
        manager.tick()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
