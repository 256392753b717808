"""The environment in which Spark's JVM starts: options, precedence of the user, and a home without pyspark.zip."""

import os
import sys
from pathlib import Path

import pytest
from pyspark import SparkContext

from headrace.spark import jvm
from headrace.spark.jvm import LATE_OPTIMIZATION, NO_OPTIMIZATION, jvm_environment, user_jvm_options

LOCAL = {"spark.master": "local[2]"}


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "SPARK_HOME",
        "SPARK_CONF_DIR",
        "SPARK_SUBMIT_OPTS",
        "PYSPARK_SUBMIT_ARGS",
        "PYSPARK_GATEWAY_PORT",
        "HADOOP_CONF_DIR",
        "YARN_CONF_DIR",
        "SPARK_DIST_CLASSPATH",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(jvm, "archive_options", lambda *_: ["-XX:archive"])


def test_options_apply_only_while_the_jvm_starts() -> None:
    with jvm_environment(LOCAL):
        assert os.environ["SPARK_SUBMIT_OPTS"].split() == [*LATE_OPTIMIZATION, "-XX:archive"]
    assert "SPARK_SUBMIT_OPTS" not in os.environ
    assert "SPARK_HOME" not in os.environ


def test_options_precede_those_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Xmx3g")
    with jvm_environment(LOCAL, NO_OPTIMIZATION):
        assert os.environ["SPARK_SUBMIT_OPTS"].split() == [*NO_OPTIMIZATION, "-XX:archive", "-Xmx3g"]
    assert os.environ["SPARK_SUBMIT_OPTS"] == "-Xmx3g"


def test_keeps_the_garbage_collector_of_the_user() -> None:
    with jvm_environment({**LOCAL, "spark.driver.extraJavaOptions": "-Xss4m -XX:+UseZGC"}, NO_OPTIMIZATION):
        assert os.environ["SPARK_SUBMIT_OPTS"].split() == ["-XX:TieredStopAtLevel=1", "-XX:archive"]


def test_reads_the_options_of_the_configuration_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = "spark.ui.enabled false\nspark.driver.extraJavaOptions -XX:+UseG1GC\n"
    (tmp_path / "spark-defaults.conf").write_text(defaults)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert "-XX:+UseG1GC" in user_jvm_options({})
    assert "false" not in user_jvm_options({})


def test_a_running_jvm_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", object())
    with jvm_environment(LOCAL):
        assert "SPARK_SUBMIT_OPTS" not in os.environ


def test_local_workers_import_the_installed_package(tmp_path: Path) -> None:
    for _ in range(2):
        with jvm_environment(LOCAL):
            home = Path(os.environ["SPARK_HOME"])
        assert home.is_relative_to(tmp_path)
        assert (home / "bin" / "spark-submit").exists()
        assert list((home / "jars").glob("spark-core*.jar"))
        assert not (home / "python").exists()


def test_replaces_a_home_whose_links_are_broken(tmp_path: Path) -> None:
    with jvm_environment(LOCAL):
        home = Path(os.environ["SPARK_HOME"])
    (home / "jars").unlink()
    (home / "jars").symlink_to(tmp_path / "gone")
    with jvm_environment(LOCAL):
        assert (Path(os.environ["SPARK_HOME"]) / "jars").exists()


@pytest.mark.parametrize(
    "conf",
    [
        {},
        {"spark.master": "yarn"},
        {"spark.master": "local-cluster[1,1,512]"},
        {**LOCAL, "spark.pyspark.python": "python3"},
    ],
)
def test_other_workers_use_sparks_own_home(tmp_path: Path, conf: dict[str, str]) -> None:
    with jvm_environment(conf):
        assert not Path(os.environ["SPARK_HOME"]).is_relative_to(tmp_path)


def test_no_archive_if_the_class_path_has_configuration_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf").mkdir()
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
    with jvm_environment(LOCAL, []):
        assert os.environ["SPARK_SUBMIT_OPTS"] == "-XX:archive", "the directory is empty"
    (tmp_path / "conf" / "core-site.xml").write_text("")
    with jvm_environment(LOCAL, []):
        assert os.environ["SPARK_SUBMIT_OPTS"] == ""


def test_does_without_a_cache_directory(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the directory should be")
    with jvm_environment(LOCAL):
        assert not Path(os.environ["SPARK_HOME"]).is_relative_to(tmp_path)
