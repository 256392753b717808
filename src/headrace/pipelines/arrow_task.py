"""A task of an Arrow flow: fetches records of one source partition, transforms them, writes the rows exactly once.

Runs in Spark's Python workers, which are forked and reused for other tasks. A task gets everything from the pickled
`ArrowTask` and its range:

    load the state ─▶ acquire the transactional id ─▶ for each record batch: transform ─▶ send, stage table rows
        ─▶ save the state's delta ─▶ commit rows and marker ─▶ return counts and staged files to the driver

Fetching and sending go on in background threads during the transformation.

Invariants:
- The state's files of a batch exist before its transaction commits, and staged files before the task ends.
- An attempt that fails leaves no row, no state in memory, and only files that the next attempt replaces or ignores.
- Memory is bounded: a record batch has about 2 MB of records, and staged rows are written when they are 32 MB.
"""

import json
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from headrace.common.errors import HeadraceError
from headrace.common.types import TopicPartition
from headrace.pipelines.arrow_flow import Task, Transform
from headrace.pipelines.pipeline import DEAD_LETTERS, Output, PipelineError, Setting, Table, Topic
from headrace.pipelines.progress import add_reasons
from headrace.pipelines.state_cache import HeldState, StateStore
from headrace.pipelines.state_files import StateFileError
from headrace.pipelines.worker_files import open_directory

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.pipelines.arrow_tables import StagedTable
    from headrace.spark.options import SourceOptions
    from headrace.spark.sink_options import SinkOptions
    from headrace.spark.task_stream import TaskRange

__all__ = ["ArrowTask", "TaskResult", "TransformError"]


class TransformError(HeadraceError):
    """The pipeline's own code failed or returned something invalid. The message names the records."""


@dataclass
class TaskResult:
    """What a task did, as it reports it to the driver."""

    rows: int = 0
    """Records read."""
    outputs: dict[str, int] = field(default_factory=dict)
    """Rows by topic."""
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The number of rows and the staged files, by table."""
    figures: dict[str, int | float] = field(default_factory=dict)
    dead_letters: dict[str, int] = field(default_factory=dict)
    """Dead letters by reason."""

    def to_bytes(self) -> bytes:
        return json.dumps(self.__dict__).encode()

    @staticmethod
    def from_bytes(content: bytes) -> "TaskResult":
        return TaskResult(**json.loads(content))


@dataclass(frozen=True)
class ArrowTask:
    """Everything that the tasks of a stream of an Arrow flow need. Calling it runs a task."""

    flow: str
    sources: Mapping[str, Topic]
    """The sources that the stream reads."""
    transform: Transform
    create_state: "Callable[[Task], Any] | None"
    outputs: Mapping[str, tuple[Output, ...]]
    settings: Mapping[str, Setting]
    shared: Any
    source_options: "SourceOptions"
    sink_options: "SinkOptions"
    directory: str
    """The directory of the flow in the checkpoint."""
    warehouse: str | None

    def __call__(self, task_range: "TaskRange") -> bytes:
        from pyspark import TaskContext

        from headrace.spark.partition_writer import WriterFencedError

        context = TaskContext.get()
        assert context is not None
        batch, query_id = (
            context.getLocalProperty(name) for name in ("streaming.sql.batchId", "sql.streaming.queryId")
        )
        if batch is None or query_id is None:
            raise RuntimeError("Spark did not tell the task its batch and query: expected Spark 4.1 to 4.3")
        batch_id = int(batch)
        try:
            return _Attempt(self, task_range, query_id, batch_id).run().to_bytes()
        except WriterFencedError:
            # Another process wrote a batch of this partition since. The second attempt acquires the id first.
            return _Attempt(self, task_range, query_id, batch_id).run().to_bytes()


class _Attempt:
    """One attempt to process the range of a task."""

    def __init__(self, flow: ArrowTask, task_range: "TaskRange", query_id: str, batch_id: int) -> None:
        self._flow = flow
        self._range = task_range
        self._query_id = query_id
        self._batch_id = batch_id
        self._tp = TopicPartition(task_range.topic, task_range.partition)
        self._source, self._columns = _find_source(flow.sources, task_range.topic)
        self._tables: dict[str, StagedTable] = {}

    def run(self) -> TaskResult:
        from headrace.spark.partition_writer import PartitionWriter

        flow, batch_id = self._flow, self._batch_id
        task = Task(self._source, self._tp.topic, self._tp.partition, batch_id, flow.settings, shared=flow.shared)
        store, held = self._take_state(task)
        result = TaskResult(figures=task.figures)
        with PartitionWriter(flow.sink_options, self._query_id, flow.flow, self._tp, batch_id) as writer:
            for records in self._records():
                result.rows += records.num_rows
                for output, rows in self._transform(records, task).items():
                    if output == DEAD_LETTERS:
                        add_reasons(result.dead_letters, _count_reasons(rows))
                    for place in flow.outputs[output]:
                        if isinstance(place, Table):
                            self._stage(place, rows)
                        else:
                            writer.send(self._records_of(output, place, rows), place.name)
            with _UserErrors(self):
                for table in self._tables.values():
                    table.flush()
                if store is not None and held is not None:
                    store.save(held, batch_id, is_merged=self._range.previous_partitions is not None)
                _check_figures(task.figures)
            writer.commit()
        if store is not None and held is not None:
            store.keep(held, batch_id)
        result.outputs = writer.rows_by_topic
        result.tables = {name: {"rows": table.rows, "files": table.files} for name, table in self._tables.items()}
        return result

    def _records(self) -> "Iterator[pa.RecordBatch]":
        from headrace.spark.fetch import read_range
        from headrace.spark.schema import columns_schema

        return read_range(self._flow.source_options, columns_schema(self._columns), self._range)

    # ---- state

    def _take_state(self, task: Task) -> tuple[StateStore | None, HeldState | None]:
        create_state = self._flow.create_state
        if create_state is None:
            return None, None
        _check_checkpoint(self._flow.directory)
        directory = f"{self._flow.directory}/state"
        store = StateStore(directory, self._query_id, task.topic, task.partition, lambda: create_state(task))
        previous = self._range.previous_partitions
        with _UserErrors(self):
            held = store.take(self._batch_id) if previous is None else store.take_merged(self._batch_id, previous)
        task.state = held.state
        return store, held

    # ---- the pipeline's own code

    def _transform(self, records: "pa.RecordBatch", task: Task) -> "dict[str, pa.Table]":
        from headrace.pipelines.arrow_records import check_rows

        try:
            returned = self._flow.transform(records, task)
        except Exception as error:
            place = _last_line_of(error)
            raise TransformError(f"{self.where(records)}: {type(error).__name__}: {error}{place}") from error
        with _UserErrors(self, records):
            return check_rows(returned, self._flow.outputs)

    def _records_of(self, output: str, topic: Topic, rows: "pa.Table") -> "pa.RecordBatch":
        from headrace.pipelines.arrow_records import output_records

        with _UserErrors(self):
            return output_records(output, topic, rows)

    def _stage(self, table: Table, rows: "pa.Table") -> None:
        from headrace.pipelines.arrow_tables import StagedTable

        staged = self._tables.get(table.name)
        if staged is None:
            root = f"{self._flow.warehouse}/{table.name}"
            staged = self._tables[table.name] = StagedTable(table, root, self._query_id, self._batch_id)
        with _UserErrors(self):
            staged.add(rows)

    def where(self, records: "pa.RecordBatch | None" = None) -> str:
        """Returns the name of the flow and the records, for error messages."""
        offsets = f"{self._range}"
        if records is not None and "offset" in records.schema.names and records.num_rows:
            column = records.column("offset")
            offsets = f"{self._tp}, offsets {column[0].as_py()} to {column[-1].as_py()}"
        return f"flow {self._flow.flow}, {offsets}"


class _UserErrors:
    """Turns errors of the flow's state, and errors about rows that `transform` returned, into `TransformError`, which
    names the records. Errors of the file system are not the user's."""

    def __init__(self, attempt: _Attempt, records: "pa.RecordBatch | None" = None) -> None:
        self._attempt = attempt
        self._records = records

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, OSError | StateFileError):
            detail = str(error) if isinstance(error, PipelineError) else f"{type(error).__name__}: {error}"
            raise TransformError(f"{self._attempt.where(self._records)}: {detail}") from error


def _count_reasons(dead_letters: "pa.Table") -> dict[str, int]:
    import pyarrow as pa

    counts = dead_letters["reason"].cast(pa.string()).value_counts()
    return {str(each["values"]): each["counts"] for each in counts.to_pylist()}


def _check_figures(figures: Mapping[str, Any]) -> None:
    for name, figure in figures.items():
        if not isinstance(figure, int | float):
            raise PipelineError(f"the figure {name!r} is of type {type(figure).__name__}; expected int or float")


@cache
def _check_checkpoint(directory: str) -> None:
    """Raises if this machine does not see the checkpoint that the driver created: the state would be lost."""
    from pyarrow.fs import FileType

    fs, path = open_directory(directory)
    if fs.get_file_info(f"{path}/flow.json").type != FileType.File:
        raise StateFileError(
            f"a task does not see the checkpoint {directory}: a flow with state needs a checkpoint on storage that the "
            "driver and all workers share"
        )


def _find_source(sources: Mapping[str, Topic], topic: str) -> tuple[str, tuple[str, ...]]:
    """Returns the name and the columns of the source that reads a topic. Sources with patterns have their own
    stream."""
    for name, source in sources.items():
        if source.pattern is not None or topic in (part.strip() for part in str(source.name).split(",")):
            return name, source.columns
    raise AssertionError(f"no source reads topic {topic}")


def _last_line_of(error: Exception) -> str:
    """Returns the file and line where an exception was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno})" if frames else ""
