"""The query of a flow of data frames: each batch is split into output frames, which Spark writes. Runs in the driver.

A batch is processed in three steps:

1. Call the flow's `split`.
2. Write all topics at once.
3. Write the tables.
"""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.pipelines.flow_query import FORMAT, FlowQuery, Run
from headrace.pipelines.outputs import check_outputs, merge_records, table_frames, topic_frames
from headrace.pipelines.pipeline import DEAD_LETTERS, Batch, Context, Flow, Frames, PipelineError, batch_scope
from headrace.pipelines.progress import MAX_REASONS, BatchResult, add_reasons
from headrace.pipelines.sources import read_source, read_sources
from headrace.pipelines.tables import write_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

_ALL_ROWS = "all of them"
_COUNTS = "counts"
_TRACKED_REASONS = 1000
"""Counts are exact up to three quarters of this number of reasons."""
_POLL_SECONDS = 0.02
_OBSERVATION_SECONDS = 1.0
"""How long to wait for observed aggregates. Another thread of Spark's delivers them at about the end of a write."""


class FrameFlowQuery(FlowQuery):
    """The streaming query of a `Flow`."""

    flow: Flow

    def __init__(self, run: Run, flow: Flow) -> None:
        super().__init__(run, flow)

    @property
    def _output_mode(self) -> str:
        return self.flow.output_mode

    def _create_stream(self, options: dict[str, str]) -> "DataFrame":
        flow, spark = self.flow, self._run.spark
        if flow.prepare is None:
            return read_sources(spark, FORMAT, flow, options, self._run.pipeline_settings)
        frames = {
            name: read_source(spark, FORMAT, topic, options, self._run.pipeline_settings)
            for name, topic in flow.sources.items()
        }
        stream = flow.prepare(frames, self._context(Context))
        if not getattr(stream, "isStreaming", False):
            raise PipelineError(
                f"flow {flow.name}: prepare returned {type(stream).__name__}; expected one streaming frame"
            )
        return stream

    def _context(self, create: Callable[..., Any], **fields: Any) -> Any:
        run = self._run
        return create(
            spark=fields.pop("spark", run.spark),
            pipeline=run.pipeline,
            flow=self.flow.name,
            settings=run.pipeline_settings,
            bootstrap_servers=run.settings.bootstrap_servers,
            state_dir=f"{self._directory}/state",
            **fields,
        )

    def _write(self, frame: "DataFrame", batch_id: int, query_id: str) -> BatchResult:
        batch = self._context(Batch, spark=frame.sparkSession, id=batch_id, query_id=query_id)
        with batch_scope(batch):
            frames = dict(self._split(frame, batch))
            check_outputs(self._run.pipeline, frames)
            reasons = self._observe_reasons(frames)
            to_topics = topic_frames(self._run.pipeline, frames)
            to_tables = table_frames(self._run.pipeline, frames)
            if len(to_topics) + len(to_tables) > 1:
                batch.keep(frame)  # otherwise every write would read the sources again
            written = BatchResult(replayed=batch_id == self._unfinished_batch)
            if to_topics:
                self._write_topics(to_topics, batch, written)
            for table, rows in to_tables:
                warehouse = str(self._run.settings.warehouse)
                count = write_table(
                    rows, table, warehouse, query_id=query_id, batch_id=batch_id, files_per_hour=self._write_tasks
                )
                written.outputs[table.name] = written.outputs.get(table.name, 0) + (count or 0)
            written.figures.update(batch.figures)
            if batch.records_read:
                written.rows = sum(batch.records_read.values())
            for observation in batch.observed:
                written.figures.update(self._figures(observation))
            if reasons is not None:
                counts = json.loads(self._figures(reasons).get(_COUNTS) or "[]")
                add_reasons(written.dead_letters, {str(each["item"]): int(each["count"]) for each in counts})
        return written

    def _observe_reasons(self, frames: dict[str, "DataFrame"]) -> "Observation | None":
        """Counts the dead letters by reason while they are written."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as sf

        dead_letters = frames.get(DEAD_LETTERS)
        if dead_letters is None:
            return None
        observation = Observation()
        counts = sf.expr(f"approx_top_k(cast(reason as string), {MAX_REASONS}, {_TRACKED_REASONS})")
        frames[DEAD_LETTERS] = dead_letters.observe(observation, sf.to_json(counts).alias(_COUNTS))
        return observation

    def _figures(self, observation: Any) -> dict[str, Any]:
        """Returns the observed aggregates. The dict is empty if the frame was not written because the table already has
        the batch."""
        deadline = self._run.clock.monotonic() + _OBSERVATION_SECONDS
        while not observation._jo.future().isCompleted():
            if self._run.clock.monotonic() >= deadline:
                return {}
            self._run.clock.sleep(_POLL_SECONDS)
        return dict(observation.get)

    def _split(self, frame: "DataFrame", batch: Batch) -> Frames:
        if self.flow.split is not None:
            return self.flow.split(frame, batch)
        (output,) = (name for name in self._run.pipeline.outputs if name != DEAD_LETTERS)
        return {output: frame}

    def _write_topics(self, frames: list["DataFrame"], batch: Batch, written: BatchResult) -> None:
        from pyspark.sql import Observation
        from pyspark.sql import functions as sf

        rows = merge_records(frames, self._write_tasks, ordered=self.flow.ordered)
        by_topic, counted = dict(batch.rows_by_topic), Observation()
        if not by_topic:
            names = [str(topic.name) for topic in self._run.pipeline.topics]
            counts = [sf.count_if(sf.col("topic") == name).alias(name) for name in names]
            rows = rows.observe(counted, sf.count("*").alias(_ALL_ROWS), *counts)
        options = {**self._run.settings.spark_options(), "queryId": batch.query_id, "batchId": str(batch.id)}
        rows.write.format(FORMAT).options(**options).mode("append").save()
        if not by_topic:
            by_topic = {name: int(count) for name, count in counted.get.items()}
            by_topic["other topics"] = by_topic.pop(_ALL_ROWS) - sum(by_topic.values())
        written.outputs.update({name: count for name, count in by_topic.items() if count})
