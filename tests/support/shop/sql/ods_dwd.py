"""The pipeline `ods-dwd`: turns the shop's raw events into clean rows, one per item. See docs/shop.md.

Two flows of the same shape, one per ODS topic. Nothing is shuffled: a task parses the records of its partition, keeps
them, and writes their rows after the driver has marked the duplicates. So every output topic has the rows of a key in
the order of their records in the ODS topic.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tests.support.shop.sql import db, log
from tests.support.shop.sql.db import db_rows, parse_db
from tests.support.shop.sql.deduplication import DeduplicatedBatch, deduplicate
from tests.support.shop.sql.log import device_columns, log_rows, parse_log

from headrace.pipelines.pipeline import DEAD_LETTERS, Batch, Flow, Frames, Pipeline, PipelineError, Topic
from headrace.shop import schemas
from headrace.shop.routes import ROUTES, Route, load_routes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS = "rows"
"""The output of all rows; the column `topic` routes each row."""


def split_log(frame: "DataFrame", batch: Batch) -> Frames:
    """Processes a batch of `ods_log`."""
    rows, window_ms = log.rows_by_topic(), _window_ms(batch)
    deduplicated = deduplicate(parse_log(frame), batch, *device_columns(), rows=rows, window_ms=window_ms)
    return _frames(log_rows(deduplicated.events), deduplicated)


def split_db(frame: "DataFrame", batch: Batch, routes: Mapping[str, Route]) -> Frames:
    """Processes a batch of `ods_db`."""
    from pyspark.sql import functions as sf

    rows = db.rows_by_topic(routes)
    deduplicated = deduplicate(parse_db(frame, routes), batch, rows=rows, window_ms=_window_ms(batch))
    batch.figures["unrouted"] = deduplicated.count - sum(batch.rows_by_topic[topic] for topic in rows)
    return _frames(db_rows(deduplicated.events, routes).where(sf.col("topic").isNotNull()), deduplicated)


def _frames(rows: "DataFrame", deduplicated: DeduplicatedBatch) -> Frames:
    if deduplicated.dead_letters is None:
        return {ROWS: rows}
    return {ROWS: rows, DEAD_LETTERS: deduplicated.dead_letters}


def _window_ms(batch: Batch) -> int:
    minutes = float(batch.settings["dedup_minutes"])
    if not 0 < minutes <= 1440:
        raise PipelineError(f"setting dedup_minutes={minutes:g}: expected more than 0 and at most 1440 minutes")
    return round(minutes * 60_000)


def make_ods_dwd(routes: Mapping[str, Route] = ROUTES, *, name: str = "ods-dwd") -> Pipeline:
    """Returns the pipeline with these routes. `{**ROUTES, "my_table": Route("dwd_mine")}` adds a route in a user's
    file."""

    def split_routed(frame: "DataFrame", batch: Batch) -> Frames:
        file = str(batch.settings["routes"])
        return split_db(frame, batch, load_routes(file, routes) if file else routes)

    topics = dict.fromkeys([*schemas.LOG_TOPICS, *(route.topic for route in routes.values())])
    return Pipeline.of(
        name,
        [
            Flow("log", {"log": Topic(schemas.ODS_LOG)}, split=split_log, ordered=False),
            Flow("db", {"db": Topic(schemas.ODS_DB)}, split=split_routed, ordered=False),
        ],
        {ROWS: Topic(None), **{topic: Topic(topic) for topic in topics}},
        description=_DESCRIPTION,
        settings={"dedup_minutes": 10.0, "routes": ""},
    )


_DESCRIPTION = """\
An online shop: turns raw app and database events into clean rows.

Reads the events of the app (ods_log) and the changes of the database (ods_db); checks, types and cleans them; removes
duplicates that arrive within dedup_minutes; corrects the flag of new visitors; and writes one row for each start, page,
display, action and error, and for each change of an order, payment, refund or cart.
"""

ods_dwd = make_ods_dwd()
