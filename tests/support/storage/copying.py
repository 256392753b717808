"""Moves logs between directories without a broker."""

from headrace.common.errors import KafkaStorageError
from headrace.common.types import TopicPartition
from headrace.storage.directory import LogDirectory
from headrace.storage.log import Log
from headrace.storage.log_copy import LogCopy, Read, Simple, Truncate
from headrace.storage.manager import LogManager


def start_move(manager: LogManager, tp: TopicPartition, directory: LogDirectory) -> Log:
    """Creates the future log of a partition."""
    return manager.futures.create(tp, directory)


def copy_log(manager: LogManager, tp: TopicPartition, *, max_bytes: int = 1000, max_steps: int | None = None) -> bool:
    """Copies a log, by default until it is replaced. Returns True if it was."""
    copy = LogCopy(tp, manager.futures)
    steps = 0
    while max_steps is None or steps < max_steps:
        steps += 1
        step = copy.next(max_bytes)
        if isinstance(step, Truncate):
            truncate_future(manager, tp, step)
        elif isinstance(step, Read):
            assert copy.append(step, step.slice.read()) > 0
        elif step is Simple.FLUSH:
            future = manager.futures.get(tp)
            assert future is not None
            future.flush_in_background()
        elif step is Simple.REPLACE:
            manager.futures.replace(tp)
            return True
        else:
            raise AssertionError(f"the copy of {tp} must {step.value}")
    return False


def truncate_future(manager: LogManager, tp: TopicPartition, step: Truncate) -> None:
    results: list[dict[TopicPartition, KafkaStorageError | None]] = []
    manager.futures.truncate(tp, step.offset, results.append, fully=step.fully)
    assert results == [{tp: None}]
