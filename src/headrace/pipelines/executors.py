"""Counts the cores that Spark has for tasks. Runs in the driver.

The executors of a cluster register some seconds after the session starts. Until then, Spark reports a meaningless
number. A checkpoint may keep decisions based on this number, so a short wait is worthwhile.
"""

from typing import TYPE_CHECKING

from headrace.common.clock import Clock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MAX_WAIT_SECONDS = 30.0
_STARTUP_MS = 120_000
"""After this time since the start of the application, no more executors are expected."""
_STABLE_SECONDS = 2.0
_POLL_SECONDS = 0.1


def count_executor_cores(spark: "SparkSession", clock: Clock) -> int:
    """Returns the number of cores. In a new session, waits first until the number of executors is stable.

    Does not wait if Spark chooses the number of executors (dynamic allocation) or the user set
    `spark.default.parallelism`.
    """
    context = spark.sparkContext
    conf = context.getConf()
    master = str(context.master)
    is_local = master == "local" or master.startswith("local[")
    is_dynamic = conf.get("spark.dynamicAllocation.enabled", "false") == "true"
    cores = context.defaultParallelism
    has_started = clock.time_ms() - context.startTime >= _STARTUP_MS
    if is_local or is_dynamic or has_started or conf.contains("spark.default.parallelism"):
        return cores
    executors = context._jsc.sc().getExecutorMemoryStatus  # includes the driver
    since = clock.monotonic()
    deadline = since + _MAX_WAIT_SECONDS
    while clock.monotonic() < deadline:
        if executors().size() < 2 or context.defaultParallelism != cores:
            cores, since = context.defaultParallelism, clock.monotonic()
        elif clock.monotonic() - since >= _STABLE_SECONDS:
            break
        clock.sleep(_POLL_SECONDS)
    return context.defaultParallelism
