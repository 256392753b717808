"""A Spark session for a command of a shell: it says nothing on the terminal, and in one line why it cannot start.

Runs in the driver. Spark reads how to log when its JVM starts, from a file: so there is one, as long as the process
lives.
"""

import atexit
import logging
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.common.extras import requires_extra
from headrace.pipelines.failures import describe_failure
from headrace.pipelines.pipeline import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_HINT = (
    "Spark needs Java 17 or newer: install it (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
)
_LOGGING = """\
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
"""The level of `shell` is what Spark takes for that of a shell, which this is to it: else it shows WARN and above."""
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_COMPILE_ALL = "-XX:-DontCompileHugeMethods"
"""What Spark generates for a wide plan are methods of a size that the JVM would only interpret."""
_COLLECTOR = "-XX:+UseParallelGC"
"""Batches make much garbage, and nobody minds a pause: this one takes about a fifth of the JVM's time less than G1."""
_ANY_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")


def quiet_session(
    app: str, master: str, conf: Mapping[str, str] | None = None, *, log_level: str = "OFF"
) -> "SparkSession":
    """`headrace.spark.session`, with Spark's log at that level and nothing else on the terminal."""
    with requires_extra("spark"):
        from pyspark.logger import PySparkLogger

        from headrace.spark.sessions import session
    chosen = {"spark.ui.enabled": "false", **(conf or {})}
    log = f"-Dlog4j2.configurationFile={_logging_file(log_level)}"
    chosen[_JAVA_OPTIONS] = java_options(chosen.get(_JAVA_OPTIONS, ""), log)
    # Or they show what goes wrong in a batch as a traceback.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the JVM starts planners of streams with its own
    try:
        _launch(master, chosen, silent=log_level.upper() == "OFF")
        return session(app, master, **chosen)
    except Exception as error:
        if "JAVA_GATEWAY_EXITED" in str(error):
            raise PipelineError(f"cannot start Spark: {JAVA_HINT}") from error
        raise PipelineError(f"cannot start Spark at {master}: {describe_failure(error)}") from error


def java_options(given: str, *more: str) -> str:
    """The JVM's options: those that suit pipelines, then what the user gave. Two collectors would be refused."""
    collector = [] if _ANY_COLLECTOR.search(given) else [_COLLECTOR]
    return " ".join([_COMPILE_ALL, *collector, *filter(None, [given]), *more])


def _launch(master: str, chosen: Mapping[str, str], *, silent: bool) -> None:
    """Starts the JVM as Spark would, but in a process group of its own: what a terminal sends to all that runs in it
    (Ctrl-C, or that it was closed) must not reach the JVM and its workers, which have a batch to finish."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    conf = SparkConf(loadDefaults=False).setMaster(master).setAll(list(chosen.items()))
    how: dict[str, Any] = {"start_new_session": True}
    if silent:
        how["stderr"] = subprocess.DEVNULL  # the JVM and Python workers talk even if Spark does not log
    SparkContext._ensure_initialized(gateway=launch_gateway(conf, popen_kwargs=how))  # type: ignore[no-untyped-call]


def _logging_file(level: str) -> str:
    handle, name = tempfile.mkstemp(prefix="headrace-", suffix=".properties")
    with os.fdopen(handle, "w") as file:
        file.write(_LOGGING.format(level=level.lower()))
    atexit.register(_remove, name)
    return name


def _remove(name: str) -> None:
    if os.path.exists(name):
        os.remove(name)
