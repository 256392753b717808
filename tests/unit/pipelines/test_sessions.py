"""What the JVM of a pipeline is started with."""

from headrace.pipelines.sessions import java_options


def test_options_that_suit_pipelines_come_first() -> None:
    assert java_options("", "-Da=b") == "-XX:-DontCompileHugeMethods -XX:+UseParallelGC -Da=b"
    assert java_options("-Xss4m").split() == ["-XX:-DontCompileHugeMethods", "-XX:+UseParallelGC", "-Xss4m"]


def test_a_collector_of_the_user_counts() -> None:
    assert java_options("-Xss4m -XX:+UseZGC", "-Dx") == "-XX:-DontCompileHugeMethods -Xss4m -XX:+UseZGC -Dx"
