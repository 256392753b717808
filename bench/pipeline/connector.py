"""Runs a pipeline of data frame flows with Spark's own Kafka connector in place of `format("headrace")`.

    python -m bench.pipeline.connector FILE --bootstrap-server HOST:PORT --checkpoint DIR --metrics FILE --master URL

The flows, their deduplication and the merged write are those of `headrace pipeline run`; only reading and writing
differ. The connector writes at least once: it has no transactions. So a row is visible as soon as it is written.
"""

import argparse
import json
import time
from typing import Any

from headrace.pipelines.loading import load_pipeline
from headrace.pipelines.outputs import merge_records, topic_frames
from headrace.pipelines.pipeline import AT, SOURCE_COLUMNS, Batch, Flow, Pipeline, batch_scope, resolve_settings
from headrace.pipelines.sessions import quiet_session

POLL_SECONDS = 0.1
OFFSET_BITS = 48
"""`_at` is the partition followed by the offset, as in `headrace.pipelines.sources`."""


class ConnectorQuery:
    """The streaming query of one flow. `_write` runs in a thread of Spark's."""

    def __init__(self, spark: Any, pipeline: Pipeline, flow: Flow, arguments: argparse.Namespace) -> None:
        from pyspark.sql import functions as sf

        self._spark = spark
        self._pipeline = pipeline
        self._flow = flow
        self._directory = f"{arguments.checkpoint}/{pipeline.name}/{flow.name}"
        self._settings = resolve_settings(pipeline, {})
        self._options = {"kafka.bootstrap.servers": arguments.bootstrap_server}
        self._reported = -1
        (topic,) = flow.sources.values()
        reader = spark.readStream.format("kafka").options(
            **self._options,
            subscribe=topic.name,
            startingOffsets="earliest",
            maxOffsetsPerTrigger=str(arguments.max_rows),
            **{"kafka.isolation.level": "read_committed"},
        )
        position = sf.shiftleft(sf.col("partition").cast("long"), OFFSET_BITS) + sf.col("offset")
        writer = reader.load().select(*SOURCE_COLUMNS, position.alias(AT)).writeStream.foreachBatch(self._write)
        writer = writer.option("checkpointLocation", f"{self._directory}/query")
        self.query = (writer.trigger(availableNow=True) if arguments.available_now else writer).start()

    def _write(self, frame: Any, batch_id: int) -> None:
        batch = Batch(
            spark=frame.sparkSession,
            pipeline=self._pipeline,
            flow=self._flow.name,
            settings=self._settings,
            bootstrap_servers=self._options["kafka.bootstrap.servers"],
            state_dir=f"{self._directory}/state",
            id=batch_id,
            query_id=str(self.query_id),
        )
        with batch_scope(batch):
            assert self._flow.split is not None
            frames = self._flow.split(frame, batch)
            rows = merge_records(topic_frames(self._pipeline, frames), 2, ordered=self._flow.ordered)
            rows.write.format("kafka").options(**self._options).save()

    @property
    def query_id(self) -> object:
        return self._spark.sparkContext.getLocalProperty("sql.streaming.queryId")

    def new_lines(self) -> list[str]:
        """Returns the batches since the last call, as `--metrics` of `headrace pipeline run` writes them."""
        lines = []
        for report in map(json.loads, (each.json() for each in self.query._jsq.recentProgress())):
            if report["batchId"] > self._reported and "addBatch" in report["durationMs"]:
                self._reported = report["batchId"]
                line = {
                    "flow": self._flow.name,
                    "batch_id": report["batchId"],
                    "time": report["timestamp"],
                    "rows": report["numInputRows"],
                    "seconds": report["durationMs"]["triggerExecution"] / 1000,
                }
                lines.append(json.dumps(line) + "\n")
        return lines


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("pipeline")
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--metrics", required=True)
    parser.add_argument("--master", default="local[*]")
    parser.add_argument("--available-now", action="store_true")
    parser.add_argument("--max-rows", type=int, default=200_000)
    parser.add_argument("--conf", action="append", default=[])
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    pipeline = load_pipeline(arguments.pipeline)
    conf = dict(text.split("=", 1) for text in arguments.conf)
    # The settings that the runner gives to its sessions.
    conf = {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "2", **conf}
    spark = quiet_session(f"connector {pipeline.name}", arguments.master, conf)
    queries = [ConnectorQuery(spark, pipeline, flow, arguments) for flow in pipeline.flows if isinstance(flow, Flow)]
    with open(arguments.metrics, "a") as metrics:
        is_active = True
        while is_active:
            is_active = all(each.query.isActive for each in queries)
            if arguments.available_now:
                is_active = any(each.query.isActive for each in queries)
            for each in queries:
                metrics.writelines(each.new_lines())
            metrics.flush()
            time.sleep(POLL_SECONDS)
    for each in queries:
        if (error := each.query.exception()) is not None:
            raise SystemExit(f"flow failed: {error}")
    spark.stop()


if __name__ == "__main__":
    main()
