"""A Spark session with settings that suit topics: quick to start, low latency, Arrow, filter pushdown. Its use is
optional.

Runs in the driver. Settings of the user, given as arguments, in `spark-defaults.conf`, to `spark-submit` or in an
environment variable, take precedence.
"""

import logging
import os
import sys
from collections.abc import Callable, Mapping

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from headrace.spark.jvm import jvm_environment

__all__ = ["SETTINGS", "let_streams_start_together", "session", "skip_numpy_checks"]

_logger = logging.getLogger(__name__)
_FORMAT = "headrace"
_STREAM_VARIABLES = ("SPARK_LOCAL_DIRS", "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE", "SPARK_PYTHON_RUNTIME")
"""The variables that Spark adds to the environment of a stream's source."""

_CHECKPOINT_FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

SETTINGS: Mapping[str, str] = {
    # Between the JVM and its Python workers: delayed TCP acknowledgements cost 45 ms per task.
    "spark.python.unix.domain.socket.enabled": "true",
    # Writes checkpoint files with fewer round trips to the file system.
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINT_FILE_MANAGER,
    # Workers start with Headrace imported.
    "spark.python.daemon.module": "headrace.spark.daemon",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
}
_NO_PROGRESS_BARS = {"spark.ui.showConsoleProgress": "false"}
"""Spark sets this itself for Python programs, so it cannot be known whether the user's files set it."""


def session(app: str = "headrace", master: str | None = None, **conf: str | int | bool) -> SparkSession:
    """Returns a Spark session for topics. An active session is reused, with `conf` applied to it.

    `conf` contains Spark's keys, with double underscores for dots, or as a mapping:
    `session(spark__ui__enabled=False)` or `session(**{"spark.ui.enabled": False})`.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    skip_numpy_checks()
    settings = {
        name.replace("__", "."): str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in conf.items()
    }
    builder = SparkSession.builder
    if SparkSession.getActiveSession() is None:
        settings = {"spark.app.name": app, **({} if master is None else {"spark.master": master}), **settings}
        settings = {**_not_configured(settings), **_NO_PROGRESS_BARS, **settings}
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    let_streams_start_together(spark)
    return spark


def let_streams_start_together(spark: SparkSession) -> None:
    """Works around a race in Spark between queries that start at the same time.

    Each query adds the same names to one map, the environment of the format. The map is not thread-safe, and Spark
    sends it with every task. A corrupted map stays corrupted ("Illegal size 5 of collection, expected 7"). If the names
    are already present, queries only change values.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    try:
        data_source = spark._jsparkSession.sessionState().dataSourceManager().lookupDataSource(_FORMAT)
        environment = data_source.dataSourceCls().envVars()
        for name in _STREAM_VARIABLES:
            environment.putIfAbsent(name, "")
    except (Py4JError, TypeError) as error:  # a Spark version with other internals
        _logger.info("Cannot prepare Spark for concurrent query starts; start queries one after the other: %s", error)


def skip_numpy_checks() -> None:
    """Works around an import of pandas, which takes a second, at the first call into the JVM: PySpark checks whether an
    argument is a NumPy object, and finds out with a module for tests whether NumPy is installed. While nothing has
    imported NumPy, no argument is a NumPy object."""
    from pyspark.sql import types

    for name in ("NumpyScalarConverter", "NumpyArrayConverter"):
        converter = getattr(types, name, None)
        check = getattr(converter, "can_convert", None)
        if converter is not None and check is not None and not hasattr(check, "without_numpy"):
            converter.can_convert = _only_with_numpy(check)


def _only_with_numpy(check: Callable[[object, object], bool]) -> Callable[[object, object], bool]:
    def can_convert(converter: object, argument: object) -> bool:
        return "numpy" in sys.modules and check(converter, argument)

    can_convert.without_numpy = True  # type: ignore[attr-defined]
    return can_convert


def _not_configured(conf: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings that neither `spark-submit` nor `spark-defaults.conf` contains.

    Only the JVM knows the configured settings. So this function starts the JVM with `conf`, if it is not running.
    """
    with jvm_environment(conf):
        SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll([*conf.items()]))
    configured = SparkConf()
    return {name: value for name, value in SETTINGS.items() if not configured.contains(name)}
