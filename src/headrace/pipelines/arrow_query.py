"""The query of an Arrow flow: Spark plans the offsets of each batch and runs its tasks (`arrow_task`). Runs in the
driver.

A batch has one task per source partition. The tasks write the topics and stage the rows of tables. The driver receives
only counts and file names, and commits the tables.

Sources with the same options are read as one stream, so that they share a batch's planning. Every other source has its
own stream; all streams of the flow belong to one query.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.pipelines.arrow_flow import ArrowFlow
from headrace.pipelines.arrow_task import ArrowTask, TaskResult
from headrace.pipelines.file_tree import FileTree
from headrace.pipelines.flow_query import FORMAT, FlowQuery, Run
from headrace.pipelines.pipeline import Topic
from headrace.pipelines.progress import BatchResult, add_reasons, sum_by_name
from headrace.pipelines.sources import source_options
from headrace.pipelines.tables import TableBatch
from headrace.spark.options import SourceOptions
from headrace.spark.sink_options import sink_options
from headrace.spark.task_stream import RESULT_SCHEMA, TASK_OPTION, encode_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["ArrowFlowQuery", "SourceStream", "source_streams"]

_OTHER_TOPICS = "other topics"
_LIMIT = "maxOffsetsPerTrigger"


class SourceStream(NamedTuple):
    """Sources that are read as one stream."""

    sources: Mapping[str, Topic]
    options: Mapping[str, str]


class ArrowFlowQuery(FlowQuery):
    """The streaming query of an `ArrowFlow`."""

    flow: ArrowFlow

    def __init__(self, run: Run, flow: ArrowFlow) -> None:
        super().__init__(run, flow)

    def _flow_values(self) -> dict[str, Any]:
        streams = source_streams(self.flow.sources, {})
        return {**super()._flow_values(), "streams": [list(stream.sources) for stream in streams]}

    def _create_stream(self, options: dict[str, str]) -> "DataFrame":
        create_shared = self.flow.shared
        shared = None if create_shared is None else create_shared(self._run.pipeline_settings)
        frames = [self._read(stream, shared) for stream in source_streams(self.flow.sources, options)]
        union = frames[0]
        for frame in frames[1:]:
            union = union.union(frame)
        return union

    def _read(self, stream: SourceStream, shared: Any) -> "DataFrame":
        run, flow = self._run, self.flow
        task = ArrowTask(
            flow=flow.name,
            sources=stream.sources,
            transform=flow.transform,
            create_state=flow.state,
            outputs=run.pipeline.outputs,
            settings=run.pipeline_settings,
            shared=shared,
            source_options=SourceOptions.parse(dict(stream.options), streaming=True),
            sink_options=sink_options(run.settings.spark_options(), streaming=False),
            directory=FileTree(run.spark, self._directory).root,
            warehouse=self._warehouse,
        )
        reader = run.spark.readStream.format(FORMAT).options(**stream.options)
        return reader.option(TASK_OPTION, encode_task(task)).schema(RESULT_SCHEMA).load()

    @property
    def _warehouse(self) -> str | None:
        warehouse = self._run.settings.warehouse
        return None if warehouse is None else FileTree(self._run.spark, warehouse).root

    def _write(self, frame: "DataFrame", batch_id: int, query_id: str) -> BatchResult:
        pipeline, warehouse = self._run.pipeline, str(self._run.settings.warehouse)
        tables = {
            table.name: TableBatch(frame.sparkSession, table, warehouse, query_id=query_id, batch_id=batch_id)
            for table in pipeline.tables
        }
        incomplete = {name for name, table in tables.items() if table.begin()}
        results = [TaskResult.from_bytes(row.result) for row in frame.collect()]
        known = {str(topic.name) for topic in pipeline.topics}
        outputs: dict[str, int] = {}
        for topic, rows in sum_by_name(result.outputs for result in results).items():
            name = topic if topic in known else _OTHER_TOPICS
            outputs[name] = outputs.get(name, 0) + rows
        for name, table in tables.items():
            if name not in incomplete:
                table.discard()
                continue
            staged = [result.tables[name] for result in results if name in result.tables]
            rows = sum(part["rows"] for part in staged)
            if rows:
                table.commit(rows, [file for part in staged for file in part["files"]])
                outputs[name] = outputs.get(name, 0) + rows
        dead_letters: dict[str, int] = {}
        for result in results:
            add_reasons(dead_letters, result.dead_letters)
        return BatchResult(
            rows=sum(result.rows for result in results),
            outputs=outputs,
            figures=sum_by_name(result.figures for result in results),
            replayed=batch_id == self._unfinished_batch,
            dead_letters=dead_letters,
        )


def source_streams(sources: Mapping[str, Topic], options: Mapping[str, str]) -> list[SourceStream]:
    """Returns the streams of a flow. Sources with names and equal options share a stream."""
    groups: dict[object, dict[str, Topic]] = {}
    for name, topic in sources.items():
        key = ("pattern", name) if topic.pattern is not None else tuple(sorted(topic.options.items()))
        groups.setdefault(key, {})[name] = topic
    streams = []
    for group in groups.values():
        first = next(iter(group.values()))
        stream_options = source_options(first, options)
        if first.pattern is None:
            stream_options["subscribe"] = ",".join(str(topic.name) for topic in group.values())
        if _LIMIT in stream_options:
            # The limit applies to each source.
            stream_options[_LIMIT] = str(int(stream_options[_LIMIT]) * len(group))
        streams.append(SourceStream(group, stream_options))
    return streams
