"""A Spark session with settings that suit topics: low latency, Arrow, filters that reach the source. Optional.

Runs in the driver. What the user sets, in arguments, in `spark-defaults.conf`, for
`spark-submit` or in an environment variable, counts more than what is set here.
"""

import logging
import os
import sys
from collections.abc import Mapping

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

__all__ = ["SETTINGS", "let_streams_start_together", "session"]

_logger = logging.getLogger(__name__)
_FORMAT = "headrace"
_SET_BY_STREAMS = ("SPARK_LOCAL_DIRS", "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE", "SPARK_PYTHON_RUNTIME")
"""What Spark puts into the environment of a stream's source, and itself for all other uses of the format."""

_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

SETTINGS: Mapping[str, str] = {
    # Between the JVM and its Python workers: TCP's delayed acknowledgements cost 45 ms for each task.
    "spark.python.unix.domain.socket.enabled": "true",
    # Writes a checkpoint's files with fewer round trips of the file system.
    "spark.sql.streaming.checkpointFileManagerClass": _FILES,
    # Workers begin with Headrace imported.
    "spark.python.daemon.module": "headrace.spark.daemon",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
}
_NO_BARS = {"spark.ui.showConsoleProgress": "false"}
"""Spark itself sets this for programs in Python: what users' files say of it is not known."""


def session(app: str = "headrace", master: str | None = None, **conf: str | int | bool) -> SparkSession:
    """A Spark session for topics, made or, if there is one, taken as it is but for `conf`.

    `conf` are Spark's keys, with dots as double underscores or in a mapping: `session(**{"spark.ui.enabled": False})`
    or `session(spark__ui__enabled=False)`.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    own = {
        name.replace("__", "."): str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in conf.items()
    }
    builder = SparkSession.builder
    if SparkSession.getActiveSession() is None:
        own = {"spark.app.name": app, **({} if master is None else {"spark.master": master}), **own}
        own = {**_not_configured(own), **_NO_BARS, **own}
    for name, value in own.items():
        builder = builder.config(name, value)
    made: SparkSession = builder.getOrCreate()
    let_streams_start_together(made)
    return made


def let_streams_start_together(spark: SparkSession) -> None:
    """Queries of one Spark that start at the same time would spoil each other: each adds the same names to one map, the
    environment of the format, which is not made for several threads and goes with every task. Once broken it stays so
    ("Illegal size 5 of collection, expected 7"). With the names in it before, they only change values."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    try:
        found = spark._jsparkSession.sessionState().dataSourceManager().lookupDataSource(_FORMAT)
        environment = found.dataSourceCls().envVars()
        for name in _SET_BY_STREAMS:
            environment.putIfAbsent(name, "")
    except (Py4JError, TypeError) as error:  # another Spark, whose inner parts are others
        _logger.info("queries had better be started one after the other: %s", error)


def _not_configured(conf: Mapping[str, str]) -> dict[str, str]:
    """Those settings that neither `spark-submit` nor `spark-defaults.conf` has. Only the JVM knows them: it is started
    here, with `conf`, if it is not there yet."""
    SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll([*conf.items()]))
    configured = SparkConf()
    return {name: value for name, value in SETTINGS.items() if not configured.contains(name)}
