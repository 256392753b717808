"""A Spark session for a command of a shell: it says nothing on the terminal, and in one line why it cannot start.

Runs in the driver. Spark reads how to log when its JVM starts, from a file: so there is one, as long as the process
lives.
"""

import atexit
import logging
import os
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.pipelines.causes import one_line
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
"""
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"


def quiet_session(
    app: str, master: str, conf: Mapping[str, str] | None = None, *, log_level: str = "OFF"
) -> "SparkSession":
    """`headrace.spark.session`, with Spark's log at that level and nothing else on the terminal."""
    try:
        from headrace.spark.session import session
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pyspark":
            raise
        raise PipelineError("pipelines need PySpark: pip install 'headrace[spark]'") from None
    chosen = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", **(conf or {})}
    log = f"-Dlog4j2.configurationFile={_logging_file(log_level)}"
    chosen[_JAVA_OPTIONS] = f"{chosen.get(_JAVA_OPTIONS, '')} {log}".strip()
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # or it shows what goes wrong in a batch as a traceback
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    try:
        return session(app, master, **chosen)
    except Exception as error:
        if "JAVA_GATEWAY_EXITED" in str(error):
            raise PipelineError(f"cannot start Spark: {JAVA_HINT}") from error
        raise PipelineError(f"cannot start Spark at {master}: {one_line(error)}") from error


def _logging_file(level: str) -> str:
    handle, name = tempfile.mkstemp(prefix="headrace-", suffix=".properties")
    with os.fdopen(handle, "w") as file:
        file.write(_LOGGING.format(level=level.lower()))
    atexit.register(_remove, name)
    return name


def _remove(name: str) -> None:
    if os.path.exists(name):
        os.remove(name)
