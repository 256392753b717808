"""Runs the SQL version of `ods-dwd` on plain record batches, as the reference for the Arrow version."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.support.shop.arrow_run import Result
from tests.support.shop.sql.ods_dwd import make_ods_dwd

from headrace.pipelines.pipeline import DEAD_LETTERS, Batch, batch_scope
from headrace.shop.routes import ROUTES, Route


class SqlRun:
    """A flow of the SQL version that processes one batch after the other."""

    def __init__(self, spark: Any, directory: Path, source: str, routes: Mapping[str, Route] = ROUTES) -> None:
        self._spark = spark
        self._pipeline = make_ods_dwd(routes)
        self._flow = next(flow for flow in self._pipeline.flows if flow.name == source)
        self._directory = directory
        self._next_id = 0

    def run(self, *chunks: pa.RecordBatch) -> Result:
        """Processes a batch."""
        frame = self._spark.createDataFrame(pa.Table.from_batches(chunks))
        batch = Batch(
            spark=self._spark,
            pipeline=self._pipeline,
            flow=self._flow.name,
            settings=self._pipeline.settings,
            bootstrap_servers="",
            state_dir=str(self._directory / self._flow.name),
            id=self._next_id,
            query_id=str(self._directory),
        )
        self._next_id += 1
        result = Result()
        with batch_scope(batch):
            assert self._flow.split is not None
            for output, found in self._flow.split(frame, batch).items():
                for row in sorted(found.toArrow().to_pylist(), key=lambda row: (row["_at"], row.get("_seq", 0))):
                    if output == DEAD_LETTERS:
                        result.dead_letters.append((row["offset"], row["reason"], row["key"], row["value"]))
                    else:
                        result.rows.setdefault(row["topic"], []).append((row["key"], row["value"]))
        result.figures = dict(batch.figures)
        return result
