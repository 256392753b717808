"""The JVM options of a pipeline."""

from headrace.pipelines.sessions import jvm_options
from headrace.spark.jvm import LATE_OPTIMIZATION, NO_OPTIMIZATION


def test_a_jvm_that_processes_rows_compiles_all_of_them() -> None:
    assert jvm_options(processes_rows=True) == (
        "-XX:-DontCompileHugeMethods",
        "-XX:+UseParallelGC",
        *LATE_OPTIMIZATION,
    )


def test_a_jvm_that_only_schedules_starts_quickly() -> None:
    assert jvm_options(processes_rows=False) == NO_OPTIMIZATION
