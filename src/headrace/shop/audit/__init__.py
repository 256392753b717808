"""Reconciles the inputs, outputs and dead letters of `ods-dwd`: `headrace pipeline audit`. See docs/datagen.md."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.common.clock import SystemClock
from headrace.pipelines.executors import count_executor_cores
from headrace.shop import schemas
from headrace.shop.audit.report import Report
from headrace.shop.routes import ROUTES, Route

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Report", "audit"]

DEAD_LETTERS = "ods_dwd_dead_letters"
_DEFAULT_SHUFFLE_PARTITIONS = "200"
"""Spark's default: far too many tasks for a few machines and some millions of rows."""


def audit(
    spark: "SparkSession",
    bootstrap_servers: str,
    *,
    routes: Mapping[str, Route] = ROUTES,
    dead_letters: str = DEAD_LETTERS,
    client: Mapping[str, str] | None = None,
    since_ms: int = 0,
) -> Report:
    """Reads all records that the ODS topics, the DWD topics and the dead letters have now, and compares them.

    `routes` are the routes of the pipeline, and `client` are additional client configs. The latency ignores records
    that were sent before `since_ms`.
    """
    from headrace.shop.audit.checks import reconcile

    # Records of aborted transactions, left by killed tasks, must not count.
    settings = {"isolation.level": "read_committed", **(client or {})}
    session = spark.newSession()
    if session.conf.get("spark.sql.shuffle.partitions") == _DEFAULT_SHUFFLE_PARTITIONS:
        session.conf.set("spark.sql.shuffle.partitions", str(count_executor_cores(spark, SystemClock()) * 2))
    options = {f"kafka.{name}": value for name, value in settings.items()}

    def read(*topics: str) -> "DataFrame":
        reader = session.read.format("headrace").options(**options).option("kafka.bootstrap.servers", bootstrap_servers)
        return reader.option("subscribe", ",".join(topics)).load()

    return reconcile(
        read(schemas.ODS_LOG),
        read(schemas.ODS_DB),
        read(*schemas.LOG_TOPICS, *dict.fromkeys(route.topic for route in routes.values())),
        read(dead_letters),
        routes,
        since_ms,
    )
