"""Logs, batches and managers for tests of `headrace.storage`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.common.background import BackgroundRunner, InlineRunner, Scheduler
from headrace.common.ids import make_random
from headrace.common.types import TopicPartition
from headrace.records import ControlType, Record, RecordBatch, decode_rows, encode_marker, encode_rows
from headrace.storage.config import LogConfig, ManagerConfig
from headrace.storage.files import FileSystem
from headrace.storage.loader import open_log
from headrace.storage.log import AppendResult, Log, LogContext
from headrace.storage.manager import LogManager
from headrace.storage.producer_state import AppendOrigin
from headrace.testing.clock import ManualClock

TP = TopicPartition("orders", 0)
START_MS = ManualClock().time_ms()
Properties = dict[str, object]
MakeLog = Callable[..., Log]
MakeManager = Callable[..., LogManager]


def new_log(
    directory: Path,
    clock: ManualClock,
    properties: Properties | None = None,
    *,
    files: FileSystem | None = None,
    runner: BackgroundRunner | None = None,
    scheduler: Scheduler | None = None,
    seed: int = 0,
) -> Log:
    context = LogContext(
        files=files or FileSystem(),
        clock=clock,
        runner=runner or InlineRunner(),
        scheduler=scheduler,
        random=make_random(seed),
    )
    return open_log(directory / str(TP), TP, LogConfig.from_properties(properties), context)[0]


def new_manager(
    directories: list[Path],
    clock: ManualClock,
    properties: Properties | None = None,
    topic_properties: Properties | None = None,
    **given: Any,
) -> LogManager:
    """Returns a manager that is not started."""
    named = ",".join(map(str, directories))
    return LogManager(
        ManagerConfig.from_properties({"log.dirs": named, **(properties or {})}),
        config_of=lambda topic: LogConfig.from_properties(topic_properties),
        **{"cluster_id": "cluster", "node_id": 1, "clock": clock, "seed": 0, **given},
    )


def make_batch(
    count: int = 1,
    *,
    key: bytes | None = b"key",
    value: bytes | None = b"x" * 50,
    at: int = START_MS,
    **fields: Any,
) -> bytearray:
    """Returns a batch of equal records; `fields` are those of `encode_rows`."""
    return encode_rows([(key, value, at, ())] * count, **fields)


def make_batch_at(*timestamps: int, **fields: Any) -> bytearray:
    """Returns a batch with a record for each timestamp."""
    return encode_rows([(b"key", b"x" * 50, at, ()) for at in timestamps], **fields)


def make_marker(
    control_type: ControlType, producer_id: int, *, epoch: int = 0, coordinator_epoch: int = 0
) -> bytearray:
    return encode_marker(
        control_type,
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        timestamp=START_MS,
    )


def append(log: Log, data: bytes | bytearray | None = None, *, replicated: bool = True, **fields: Any) -> AppendResult:
    """Appends a batch, by default from `make_batch`, and advances the high watermark."""
    result = log.append_as_leader(make_batch(**fields) if data is None else data, 0)
    if replicated:
        log.update_high_watermark(log.log_end_offset)
    return result


def send(
    log: Log, producer_id: int, sequence: int = 0, count: int = 1, *, epoch: int = 0, **fields: Any
) -> AppendResult:
    """Appends an idempotent producer's batch."""
    return append(log, count=count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **fields)


def end_transaction(
    log: Log,
    producer_id: int,
    control_type: ControlType = ControlType.COMMIT,
    *,
    replicated: bool = True,
    **fields: int,
) -> AppendResult:
    result = log.append_as_leader(make_marker(control_type, producer_id, **fields), 0, AppendOrigin.COORDINATOR)
    if replicated:
        log.update_high_watermark(log.log_end_offset)
    return result


def batches_of(log: Log) -> list[RecordBatch]:
    return list(log.batches())


def records_of(log: Log) -> list[Record]:
    return [record for batch in log.batches() if not batch.is_control for record in decode_rows(batch.records())]


def contents(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    """Returns offset, key and value of each data record."""
    return [(record.offset, record.key, record.value) for record in records_of(log)]


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}
