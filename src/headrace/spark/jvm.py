"""How Spark's JVM is started: its options, its archive of classes, and where its Python workers find PySpark.

Runs in the driver. The options go to the JVM through SPARK_SUBMIT_OPTS, which comes before the options of the user
(`spark.driver.extraJavaOptions`), so that these take precedence.

The environment of the process is changed only while the JVM starts.
"""

import logging
import os
import re
import shutil
import site
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from headrace.common.ids import make_random
from headrace.spark.class_archive import archive_options, cache_directory

__all__ = ["LATE_OPTIMIZATION", "NO_OPTIMIZATION", "jvm_environment", "user_jvm_options"]

_logger = logging.getLogger(__name__)
_OPTIONS = "SPARK_SUBMIT_OPTS"
_HOME = "SPARK_HOME"
_USER_OPTIONS = "spark.driver.extraJavaOptions"

LATE_OPTIMIZATION = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
"""The optimizing compiler starts ten times later than by default: most methods that it would compile while Spark starts
are never needed again. Code that processes rows reaches these numbers in seconds."""
NO_OPTIMIZATION = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Only the quick compiler, and a collector without threads: for a JVM that schedules, but processes no rows."""
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
_JVM_OPTION = re.compile(r"-X[^\s\"']+")
"""An option of the JVM itself. Others, such as the path of a log configuration, do not matter for the archive."""


def user_jvm_options(conf: Mapping[str, str]) -> str:
    """Returns the JVM options that the user has set, as far as they are known before the JVM starts."""
    options = [conf.get(_USER_OPTIONS, ""), os.environ.get("PYSPARK_SUBMIT_ARGS", ""), os.environ.get(_OPTIONS, "")]
    options += [os.environ.get("JDK_JAVA_OPTIONS", ""), os.environ.get("JAVA_TOOL_OPTIONS", "")]
    directory = os.environ.get("SPARK_CONF_DIR") or os.path.join(os.environ.get(_HOME, ""), "conf")
    try:
        lines = Path(directory, "spark-defaults.conf").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    options += [line for line in lines if line.strip().startswith(_USER_OPTIONS)]
    return " ".join(filter(None, options))


@contextmanager
def jvm_environment(conf: Mapping[str, str], options: Sequence[str] = LATE_OPTIMIZATION) -> Iterator[None]:
    """Within the block, PySpark starts its JVM with these options. They do not replace options of the user."""
    from pyspark import SparkContext, __version__
    from pyspark.find_spark_home import _find_spark_home

    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        yield  # the JVM is running
        return
    user_options = user_jvm_options(conf)
    if _COLLECTOR.search(user_options):  # the JVM accepts only one garbage collector
        options = [option for option in options if not _COLLECTOR.search(option)]
    home = _find_spark_home()
    if _workers_can_import_pyspark(conf):
        home = _home_without_archive(home, __version__) or home
    archive = []
    if not _has_directories_on_class_path(conf, home):
        archive = archive_options(home, __version__, " ".join([*options, *_JVM_OPTION.findall(user_options)]))
    changes = {_OPTIONS: " ".join(filter(None, [*options, *archive, os.environ.get(_OPTIONS)])), _HOME: home}
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _has_directories_on_class_path(conf: Mapping[str, str], home: str) -> bool:
    """Returns True if the class path has more than Spark's jars. The JVM creates no archive if it contains a directory
    with files, such as one with configuration files."""
    names = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")
    if "spark.driver.extraClassPath" in conf or any(os.environ.get(name) for name in names):
        return True
    directory = os.environ.get("SPARK_CONF_DIR") or os.path.join(home, "conf")
    return os.path.isdir(directory) and bool(os.listdir(directory))


def _workers_can_import_pyspark(conf: Mapping[str, str]) -> bool:
    """Returns True if Python workers run on this machine with this interpreter and its installed PySpark."""
    import pyspark

    installed = [*site.getsitepackages(), site.getusersitepackages()]
    return (
        conf.get("spark.master", "").startswith("local")
        and not conf.get("spark.master", "").startswith("local-cluster")
        and _HOME not in os.environ
        and "spark.pyspark.python" not in conf
        and os.environ.get("PYSPARK_PYTHON", sys.executable) == sys.executable
        and str(Path(pyspark.__file__).parents[1]) in installed
    )


def _home_without_archive(home: str, version: str) -> str | None:
    """Returns a copy of Spark's home, made of links, without `python/lib/pyspark.zip`. Spark puts this file on the path
    of its Python workers, where Python compiles every module again at every start. Without it, workers import the
    installed package, which is compiled."""
    directory = cache_directory() / "spark-homes" / f"{version}-{home.strip('/').replace('/', '-')[-120:]}"
    if (directory / "jars").exists():
        return str(directory)
    new = directory.with_name(f"{directory.name}.{make_random().getrandbits(48):012x}")
    try:
        new.mkdir(parents=True)
        for name in ("RELEASE", "bin", "conf", "data", "jars", "sbin"):
            if os.path.exists(os.path.join(home, name)):
                (new / name).symlink_to(os.path.join(home, name))
        if directory.exists():  # its links point to nothing: PySpark was moved
            shutil.rmtree(directory)
        new.rename(directory)
    except OSError as error:
        shutil.rmtree(new, ignore_errors=True)
        if (directory / "jars").exists():  # another process was faster
            return str(directory)
        _logger.info("Python workers of Spark start slowly: %s", error)
        return None
    return str(directory)
