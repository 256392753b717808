"""A Spark session for shell commands: it logs nothing to the terminal and reports in one line why it cannot start.

Runs in the driver. Spark reads its log configuration from a file when its JVM starts, so a temporary file exists for as
long as the process runs.
"""

import atexit
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.common.extras import requires_extra
from headrace.pipelines.failures import describe_failure
from headrace.pipelines.pipeline import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_HINT = (
    "Spark needs Java 17 or newer: install it (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
)
_LOG_CONFIGURATION = """\
status = off
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n%throwable
rootLogger.level = {level}
rootLogger.appenderRef.console.ref = console
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = {level}
"""
"""Spark treats this process as a shell and takes the level of `shell` for it; its default would show WARN and above."""
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_COMPILE_ALL = "-XX:-DontCompileHugeMethods"
"""For wide plans Spark generates methods so large that the JVM would only interpret them by default."""
_COLLECTOR = "-XX:+UseParallelGC"
"""Batches create much garbage and tolerate pauses: this collector takes about a fifth less of the JVM's time than
G1."""


def quiet_session(
    app: str,
    master: str,
    conf: Mapping[str, str] | None = None,
    *,
    log_level: str = "OFF",
    processes_rows: bool = True,
) -> "SparkSession":
    """Returns `headrace.spark.session` with Spark's log at this level and no other output on the terminal.

    `processes_rows=False` starts a JVM for short runs, and for flows that process their rows in Python.
    """
    with requires_extra("spark"):
        from pyspark.logger import PySparkLogger

        from headrace.spark.sessions import session
    settings = {"spark.ui.enabled": "false", **(conf or {})}
    log = f"-Dlog4j2.configurationFile={_log_configuration_file(log_level)}"
    settings[_JAVA_OPTIONS] = f"{settings.get(_JAVA_OPTIONS, '')} {log}".strip()
    # These loggers would print the failure of a batch as a traceback.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the JVM starts stream planners with its own default
    try:
        _launch(master, settings, jvm_options(processes_rows), silent=log_level.upper() == "OFF")
        return session(app, master, **settings)
    except Exception as error:
        if "JAVA_GATEWAY_EXITED" in str(error):
            raise PipelineError(f"cannot start Spark: {JAVA_HINT}") from error
        raise PipelineError(f"cannot start Spark at {master}: {describe_failure(error)}") from error


def jvm_options(processes_rows: bool) -> tuple[str, ...]:
    """Returns the JVM options for pipelines. Options of the user take precedence."""
    from headrace.spark.jvm import LATE_OPTIMIZATION, NO_OPTIMIZATION

    return (_COMPILE_ALL, _COLLECTOR, *LATE_OPTIMIZATION) if processes_rows else NO_OPTIMIZATION


def _launch(master: str, settings: Mapping[str, str], options: Sequence[str], *, silent: bool) -> None:
    """Starts the JVM as Spark would, but in its own process group. Signals of a terminal (Ctrl-C, or its end) must not
    reach the JVM and its workers, which have a batch to finish."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    from headrace.spark.jvm import jvm_environment
    from headrace.spark.sessions import skip_numpy_checks

    if SparkContext._gateway is not None:
        return
    skip_numpy_checks()
    conf = SparkConf(loadDefaults=False).setMaster(master).setAll(list(settings.items()))
    popen_options: dict[str, Any] = {"start_new_session": True}
    if silent:
        popen_options["stderr"] = subprocess.DEVNULL  # the JVM and Python workers print even if Spark does not log
    with jvm_environment({**settings, "spark.master": master}, options):
        gateway = launch_gateway(conf, popen_kwargs=popen_options)  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway)


def _log_configuration_file(level: str) -> str:
    handle, name = tempfile.mkstemp(prefix="headrace-", suffix=".properties")
    with os.fdopen(handle, "w") as file:
        file.write(_LOG_CONFIGURATION.format(level=level.lower()))
    atexit.register(_remove, name)
    return name


def _remove(name: str) -> None:
    if os.path.exists(name):
        os.remove(name)
