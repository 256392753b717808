"""The pipeline `ods-dwd`: the shop's raw events to clean ones, a row for each item. See docs/shop.md.

Two flows, one for each ODS topic, of the same shape. Nothing is shuffled: a task parses the records of its partition,
keeps them, and writes their rows after the driver has said which are duplicates. So each topic has the rows of a key in
the order in which its records are in the ODS topic.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.pipelines.pipeline import DEAD_LETTERS, Batch, Flow, Frames, Pipeline, PipelineError, Topic
from headrace.shop import db, log, schemas
from headrace.shop.db import db_rows, parse_db
from headrace.shop.deduplication import Judged, judge
from headrace.shop.log import log_rows, parse_log, sighting
from headrace.shop.routes import ROUTES, Route, load_routes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS = "rows"
"""The output that all rows go through, each to its own topic."""


def split_log(frame: "DataFrame", batch: Batch) -> Frames:
    """A batch of `ods_log`."""
    judged = judge(parse_log(frame), batch, *sighting(), rows=log.rows_by_topic(), window_ms=_window_ms(batch))
    return _frames(log_rows(judged.events), judged)


def split_db(frame: "DataFrame", batch: Batch, routes: Mapping[str, Route]) -> Frames:
    """A batch of `ods_db`."""
    from pyspark.sql import functions as sf

    rows = db.rows_by_topic(routes)
    judged = judge(parse_db(frame, routes), batch, rows=rows, window_ms=_window_ms(batch))
    batch.figures["unrouted"] = judged.count - sum(batch.rows_by_topic[topic] for topic in rows)
    return _frames(db_rows(judged.events, routes).where(sf.col("topic").isNotNull()), judged)


def _frames(rows: "DataFrame", judged: Judged) -> Frames:
    if judged.dead_letters is None:
        return {ROWS: rows}
    return {ROWS: rows, DEAD_LETTERS: judged.dead_letters}


def _window_ms(batch: Batch) -> int:
    minutes = float(batch.settings["dedup_minutes"])
    if not 0 < minutes <= 1440:
        raise PipelineError(f"setting dedup_minutes={minutes:g}: expected more than 0, and at most 1440")
    return round(minutes * 60_000)


def make_ods_dwd(routes: Mapping[str, Route] = ROUTES, *, name: str = "ods-dwd") -> Pipeline:
    """The pipeline with these routes. In a user's own file, `{**ROUTES, "my_table": Route("dwd_mine")}` adds one."""

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
An online shop: raw app and database events to clean ones.

Reads what the app tells (ods_log) and what changes in the database (ods_db); checks, types and cleans it; removes
duplicates that come within dedup_minutes; repairs the flag of new visitors; and writes one row for each start, page,
display, action and error, and for each change of an order, payment, refund or cart.
"""

ods_dwd = make_ods_dwd()
