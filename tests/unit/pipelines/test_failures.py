"""Failures of Spark, Python workers and the JVM, described in one line."""

import pytest

from headrace.pipelines.failures import describe_failure, retries_allowed

SparkError = type("SparkError", (Exception,), {"__module__": "pyspark.errors.exceptions.captured"})

IN_BATCH = """\
[STREAM_FAILED] Query [id = 0467305d, runId = 099d8c0f] terminated with exception: [FOREACH_BATCH_USER_FUNCTION_ERROR] \
An error occurred in the user provided function. Reason: An exception was raised by the Python Proxy. Return Message: \
Traceback (most recent call last):
  File "/py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
  File "mine.py", line 23, in bad
    raise ValueError("no such thing")
some.module.NotThereError: no such thing
 as this
 SQLSTATE: 39000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: [id = 0467305d]
"""
IN_TASK = """\
Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times, most recent failure: Lost task 0.3 (localhost): \
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/pyspark/worker.py", line 100, in main
    process()
ZeroDivisionError: division by zero

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)
"""
CLEANING_UP = """\
[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when initializing: Traceback (most recent call last):
  File "/pyspark/worker.py", line 100, in main
    reader = make()
headrace.common.errors.ConfigError: the option 'startingOffsets' is 'somewhere'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/pyspark/worker.py", line 120, in main
    reader.stop()
UnboundLocalError: cannot access local variable 'reader' where it is not associated with a value
"""
IN_JVM = """\
An error occurred while calling o1.start.
: org.apache.spark.SparkException: Exception thrown in awaitResult
\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:56)
Caused by: java.io.IOException: Failed to connect to master/10.0.0.1:7077
\tat org.apache.spark.network.client.TransportClientFactory.createClient(TransportClientFactory.java:294)
"""
ANALYSIS = """\
[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `amont` cannot be resolved. Did you mean `x`? SQLSTATE: 42703;
'Project ['amont]
+- LogicalRDD [amount#1]
"""


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (SparkError(IN_BATCH), "no such thing as this"),
        (SparkError(IN_TASK), "division by zero"),
        (SparkError(CLEANING_UP), "the option 'startingOffsets' is 'somewhere'"),
        (
            SparkError(
                "An error occurred while calling o83.mkdirs.\n: java.io.IOException: Not a directory\n\tat x.Y(Z:1)"
            ),
            "java.io.IOException: Not a directory",
        ),
        (SparkError(IN_JVM), "java.io.IOException: Failed to connect to master/10.0.0.1:7077"),
        (SparkError(ANALYSIS), "A column with name `amont` cannot be resolved. Did you mean `x`?;"),
        (SparkError(""), "SparkError"),
        (ValueError("two\n  lines"), "two lines"),
        (ValueError(), "ValueError"),
        (ValueError("x" * 1000), "x" * 600 + "..."),
        (
            SparkError("Traceback (most recent call last):\n  nothing that could be read"),
            "Traceback (most recent call last):",
        ),
    ],
)
def test_describes_failure_in_one_line(error: Exception, message: str) -> None:
    assert describe_failure(error) == message


AnalysisError = type("AnalysisException", (SparkError,), {"__module__": SparkError.__module__})


@pytest.mark.parametrize(
    ("error", "times"),
    [
        (SparkError(IN_TASK), 1),
        (SparkError(IN_JVM), 1),
        (SparkError("Python worker failed to connect back."), 5),
        (RuntimeError("Python worker failed to connect back."), 5),
        (SparkError(CLEANING_UP), 0),
        (AnalysisError(ANALYSIS), 0),
        (ValueError("no such thing"), 0),
    ],
)
def test_retries_temporary_failures_only(error: BaseException, times: int) -> None:
    assert retries_allowed(error) == times
