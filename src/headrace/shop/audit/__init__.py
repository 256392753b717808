"""Reconciles the inputs, outputs and dead letters of `ods-dwd`: `headrace pipeline audit`. See docs/datagen.md."""

from collections.abc import Mapping

from headrace.shop import schemas
from headrace.shop.audit.report import Report
from headrace.shop.routes import ROUTES, Route

__all__ = ["Report", "audit"]

DEAD_LETTERS = "ods_dwd_dead_letters"


def audit(
    bootstrap_servers: str,
    *,
    routes: Mapping[str, Route] = ROUTES,
    dead_letters: str = DEAD_LETTERS,
    client: Mapping[str, str] | None = None,
    since_ms: int = 0,
    master: str = "local[*]",
    conf: Mapping[str, str] | None = None,
) -> Report:
    """Reads all records that the ODS topics, the DWD topics and the dead letters have now, and compares them.

    `routes` are the routes of the pipeline, and `client` are additional client configs. The latency ignores records
    that were sent before `since_ms`. Starts no Spark, unless there are records that only Spark's JSON parser can judge:
    then at `master`, with `conf`.
    """
    from headrace.pipelines.topic_reader import read_topics
    from headrace.shop.audit.checks import Reconciliation
    from headrace.shop.audit.expected import spark_judge

    reconciliation = Reconciliation(routes, spark_judge(routes, master, conf))
    outputs = [*schemas.LOG_TOPICS, *dict.fromkeys(route.topic for route in routes.values())]
    for topics, add in (
        ([schemas.ODS_LOG, schemas.ODS_DB], reconciliation.add_inputs),
        (outputs, reconciliation.add_outputs),
        ([dead_letters], reconciliation.add_dead_letters),
    ):
        for records in read_topics(bootstrap_servers, topics, client):
            add(records)
    return reconciliation.report(since_ms)
