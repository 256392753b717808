"""How many cores Spark has for tasks. Runs in the driver.

Executors of a cluster come some seconds after the session is made; until then Spark tells a number that means nothing.
What depends on it may be kept for as long as a checkpoint lives, so it is worth a short wait.
"""

from typing import TYPE_CHECKING

from headrace.common.clock import Clock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LONGEST = 30.0
_SETTLED_MS = 120_000
"""Who has not come so long after the application began is not waited for."""
_UNCHANGED = 2.0
_POLL = 0.1


def count_executor_cores(spark: "SparkSession", clock: Clock) -> int:
    """Waits until the executors of a cluster that has just been joined are there: their number does not rise any more.
    Where it is Spark that decides how many there are (dynamic allocation), or the user (`spark.default.parallelism`),
    there is nothing to wait for."""
    context = spark.sparkContext
    conf = context.getConf()
    master = str(context.master)
    is_local = master == "local" or master.startswith("local[")
    is_dynamic = conf.get("spark.dynamicAllocation.enabled", "false") == "true"
    cores = context.defaultParallelism
    is_settled = clock.time_ms() - context.startTime >= _SETTLED_MS
    if is_local or is_dynamic or is_settled or conf.contains("spark.default.parallelism"):
        return cores
    executors = context._jsc.sc().getExecutorMemoryStatus  # and the driver
    since = clock.monotonic()
    deadline = since + _LONGEST
    while clock.monotonic() < deadline:
        if executors().size() < 2 or context.defaultParallelism != cores:
            cores, since = context.defaultParallelism, clock.monotonic()
        elif clock.monotonic() - since >= _UNCHANGED:
            break
        clock.sleep(_POLL)
    return context.defaultParallelism
