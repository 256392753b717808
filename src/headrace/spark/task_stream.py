"""A stream whose tasks run a function instead of returning their records.

    spark.readStream.format("headrace").options(**options, **{TASK_OPTION: encode_task(run)}).schema(RESULT_SCHEMA)

Spark plans offsets, keeps the checkpoint, schedules and retries the tasks. Each task calls `run(TaskRange)` in a Python
worker and returns its result, a few bytes, as its only row. The records never pass through the JVM. The function is
pickled by value into an option, and unpickled once per worker process.

Invariants:
- A task has the whole range of one source partition: ranges are never split.
- If the partitions of a topic differ from those of the previous batch, every partition of the topic has a task, even
  without records. `TaskRange.previous_partitions` then lists the partitions of the previous batch. This depends only on
  the offsets in the checkpoint, so it is the same in a replay.
"""

import base64
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from headrace.spark.fetch import RangePartition
from headrace.spark.garbage import freeze_after_first_task
from headrace.spark.metadata import Cluster
from headrace.spark.offsets import Offsets, from_spark
from headrace.spark.schema import source_schema
from headrace.spark.stream import StreamReader

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RESULT_SCHEMA", "TASK_OPTION", "TaskRange", "TaskStreamReader", "encode_task"]

TASK_OPTION = "headrace.task"
"""The option with the pickled function. It is for Headrace's own use."""
RESULT_SCHEMA = "result binary"

TaskFunction = Callable[["TaskRange"], bytes]
_MAX_FUNCTIONS = 16
_functions: dict[str, TaskFunction] = {}
"""The functions that this worker process has unpickled, by their text. A query always sends the same text."""


class TaskRange(RangePartition):
    """The part of a batch that one task processes."""

    def __init__(
        self, topic: str, partition: int, start: int, end: int, previous_partitions: tuple[int, ...] | None = None
    ):
        super().__init__(topic, partition, start, end)
        self.previous_partitions = previous_partitions
        """The topic's partitions in the previous batch, if they differ from those of this batch; otherwise None."""

    def __str__(self) -> str:
        if self.start == self.end:
            return f"{self.topic}-{self.partition}, no offsets"
        return f"{self.topic}-{self.partition}, offsets {self.start} to {self.end - 1}"


def encode_task(function: TaskFunction) -> str:
    """Returns the value of `TASK_OPTION` for a function."""
    from pyspark import cloudpickle

    content: bytes = cloudpickle.dumps(function)  # type: ignore[no-untyped-call]
    return base64.b64encode(content).decode()


def _decode_task(text: str) -> TaskFunction:
    from pyspark import cloudpickle

    function = _functions.pop(text, None)
    if function is None:
        loaded: TaskFunction = cloudpickle.loads(base64.b64decode(text))
        function = loaded
    _functions[text] = function
    while len(_functions) > _MAX_FUNCTIONS:
        _functions.pop(next(iter(_functions)))
    return function


class TaskStreamReader(StreamReader):
    """Plans the batches of a stream of tasks, and runs the tasks."""

    def __init__(self, options: dict[str, str], cluster: Cluster | None = None):
        self._task = options[TASK_OPTION]
        source_options = {name: value for name, value in options.items() if name != TASK_OPTION}
        super().__init__(source_options, source_schema(include_headers=False), cluster)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_task": self._task}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begin, ends = self._bounds(start, end)
        return list(task_ranges(from_spark(start), from_spark(end), begin, ends))

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        if isinstance(partition, TaskRange):
            result = _decode_task(self._task)(partition)
            freeze_after_first_task()
            yield pa.RecordBatch.from_arrays([pa.array([result], pa.binary())], names=["result"])


def task_ranges(previous: Offsets, planned: Offsets, begin: Offsets, ends: Offsets) -> Iterator[TaskRange]:
    """Yields the tasks of a batch. `previous` and `planned` are the offsets in the checkpoint: of the previous batch
    (none before the first) and of this one. `ends` has the offsets to read now; it may lack partitions without records,
    and partitions that were deleted since."""
    before, after = _partitions_by_topic(previous), _partitions_by_topic(planned)
    for tp in sorted(planned):
        is_deleted = tp not in ends and planned[tp] > begin[tp]
        is_changed = tp.topic in before and before[tp.topic] != after[tp.topic]
        end = max(begin[tp], ends.get(tp, begin[tp]))  # an end before the start: the log lost its end
        if not is_deleted and (is_changed or end > begin[tp]):
            yield TaskRange(tp.topic, tp.partition, begin[tp], end, before[tp.topic] if is_changed else None)


def _partitions_by_topic(offsets: Offsets) -> dict[str, tuple[int, ...]]:
    topics: dict[str, list[int]] = {}
    for tp in sorted(offsets):
        topics.setdefault(tp.topic, []).append(tp.partition)
    return {topic: tuple(partitions) for topic, partitions in topics.items()}
