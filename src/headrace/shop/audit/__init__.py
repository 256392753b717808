"""Reconciles what `ods-dwd` has read, written and put aside: `headrace pipeline audit`. See docs/datagen.md."""

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
_SPARK_SHUFFLES = "200"
"""Spark's default: far more tasks than a few machines need for some millions of rows."""


def audit(
    spark: "SparkSession",
    bootstrap_servers: str,
    *,
    routes: Mapping[str, Route] = ROUTES,
    dead_letters: str = DEAD_LETTERS,
    client: Mapping[str, str] | None = None,
    since_ms: int = 0,
) -> Report:
    """Reads the ODS topics, the DWD topics and the dead letters as they are now, from the first record to the last, and
    compares them. `routes` are those that the pipeline ran with, `client` has more client settings. Records that
    were sent before `since_ms` do not count for the latency."""
    from headrace.shop.audit.checks import reconcile

    # What a killed task left behind in a transaction that was aborted is in the log, and was never written.
    settings = {"isolation.level": "read_committed", **(client or {})}
    own = spark.newSession()
    if own.conf.get("spark.sql.shuffle.partitions") == _SPARK_SHUFFLES:
        own.conf.set("spark.sql.shuffle.partitions", str(count_executor_cores(spark, SystemClock()) * 2))
    options = {f"kafka.{name}": value for name, value in settings.items()}

    def read(*topics: str) -> "DataFrame":
        reader = own.read.format("headrace").options(**options).option("kafka.bootstrap.servers", bootstrap_servers)
        return reader.option("subscribe", ",".join(topics)).load()

    return reconcile(
        read(schemas.ODS_LOG),
        read(schemas.ODS_DB),
        read(*schemas.LOG_TOPICS, *dict.fromkeys(route.topic for route in routes.values())),
        read(dead_letters),
        routes,
        since_ms,
    )
