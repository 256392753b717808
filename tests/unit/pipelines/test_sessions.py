"""The JVM options of a pipeline."""

from headrace.pipelines.sessions import java_options


def test_pipeline_options_precede_user_options() -> None:
    assert java_options("", "-Da=b") == "-XX:-DontCompileHugeMethods -XX:+UseParallelGC -Da=b"
    assert java_options("-Xss4m").split() == ["-XX:-DontCompileHugeMethods", "-XX:+UseParallelGC", "-Xss4m"]


def test_keeps_the_garbage_collector_of_the_user() -> None:
    assert java_options("-Xss4m -XX:+UseZGC", "-Dx") == "-XX:-DontCompileHugeMethods -Xss4m -XX:+UseZGC -Dx"
