"""A Spark session with settings that suit topics: low latency, Arrow, filters that reach the source. Optional.

Runs in the driver. What the user sets, in arguments or in an environment variable, counts more than what is set here.
"""

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

__all__ = ["SETTINGS", "session"]

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
    "spark.ui.showConsoleProgress": "false",
}


def session(app: str = "headrace", master: str | None = None, **conf: str | int | bool) -> SparkSession:
    """A Spark session for topics, made or, if there is one, taken as it is.

    `conf` are Spark's keys, with dots as double underscores or in a mapping: `session(**{"spark.ui.enabled": False})`
    or `session(spark__ui__enabled=False)`.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app)
    if master is not None:
        builder = builder.master(master)
    for name, value in {**SETTINGS, **{name.replace("__", "."): value for name, value in conf.items()}}.items():
        builder = builder.config(name, str(value).lower() if isinstance(value, bool) else str(value))
    made: SparkSession = builder.getOrCreate()
    return made
