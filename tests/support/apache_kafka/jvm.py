"""Downloads Apache Kafka's jars and runs their programs in a JVM.

``mvn`` downloads the jars from Maven Central to ``$HEADRACE_CACHE`` (default: ``~/.cache/headrace``), so only the first
run needs the download.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

KAFKA_VERSION = "4.3.0"
MINIMUM_JAVA = 17
INSTALL_TIMEOUT = 900.0

_COPY_PLUGIN_VERSION = "2.8"

# One configuration serves tools (quiet) and brokers (level INFO): all to standard error.
_LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = ${sys:headrace.log.level:-WARN}
rootLogger.appenderRef.console.ref = console
"""

_LOGGING_OF_KAFKA_3 = """\
log4j.rootLogger = ${headrace.log.level}, console
log4j.appender.console = org.apache.log4j.ConsoleAppender
log4j.appender.console.target = System.err
log4j.appender.console.layout = org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern = [%d] %p %m (%c)%n
"""

TOOL_JVM_ARGS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m")
_COMMON_JVM_ARGS = (
    "-Djava.awt.headless=true",
    "-Dfile.encoding=UTF-8",
    "-Dsun.stdout.encoding=UTF-8",
    "-Dsun.stderr.encoding=UTF-8",
)


@dataclass(frozen=True)
class KafkaRelease:
    """A version of Apache Kafka: its jars, and the file and system property that configure its logging."""

    version: str
    dependencies: tuple[tuple[str, str, str], ...]
    logging_file: str
    logging: str
    logging_property: str

    @property
    def title(self) -> str:
        return f"Apache Kafka {self.version}"

    @property
    def home(self) -> Path:
        """The directory of the jars and the logging configuration. Downloads them if they are not cached."""
        return fetch_jars(
            f"kafka-{self.version}", self.title, self.dependencies, files={self.logging_file: self.logging}
        )


NEWEST = KafkaRelease(
    KAFKA_VERSION,
    (
        ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
        ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
        ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
    ),
    "log4j2.properties",
    _LOGGING,
    "log4j2.configurationFile",
)
LAST_WITH_ZOOKEEPER = KafkaRelease(
    "3.9.1",
    (("org.apache.kafka", "kafka_2.13", "3.9.1"), ("org.slf4j", "slf4j-reload4j", "1.7.36")),
    "log4j.properties",
    _LOGGING_OF_KAFKA_3,
    "log4j.configuration",
)


class KafkaUnavailable(Exception):
    """Apache Kafka cannot run on this machine; the message says why."""


class JavaFailed(Exception):
    """A Java program exited with a nonzero status."""


_classpaths: dict[KafkaRelease, str] = {}
_failure: KafkaUnavailable | None = None


def kafka_classpath(release: KafkaRelease = NEWEST) -> str:
    """Returns a classpath with all of Kafka, and downloads it if it is not cached. After a failure, later calls fail
    immediately.
    """
    global _failure
    if _failure is not None:
        raise _failure
    if release not in _classpaths:
        try:
            require_java()
            _classpaths[release] = str(release.home / "libs" / "*")
        except KafkaUnavailable as error:
            _failure = error
            raise
    return _classpaths[release]


def compile_java(source: Path, classes: Path) -> None:
    """Compiles a program that is started several times into a directory."""
    classpath = kafka_classpath()
    _require_command("javac")
    subprocess.run(["javac", "-cp", classpath, "-d", str(classes), str(source)], check=True)


def start_java(
    program: str | Path,
    args: Sequence[str | Path] = (),
    *,
    release: KafkaRelease = NEWEST,
    classes: Path | None = None,
    jvm_args: Sequence[str] = TOOL_JVM_ARGS,
    log_level: str = "WARN",
    stdin: int | IO[Any] | None = None,
    stdout: int | IO[Any] | None = None,
    stderr: int | IO[Any] | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Starts a Java program and returns immediately.

    *program* is the name of a main class, of Kafka's or from the directory *classes*,
    or the path of a ``.java`` file, which the JVM compiles in memory first.
    """
    classpath = kafka_classpath(release)
    if classes is not None:
        classpath = f"{classes}{os.pathsep}{classpath}"
    if str(program).endswith(".java"):
        _require_command("javac")
    logging_config = (release.home / release.logging_file).as_uri()
    command: list[str] = [
        "java",
        *_COMMON_JVM_ARGS,
        f"-D{release.logging_property}={logging_config}",
        f"-Dheadrace.log.level={log_level}",
        *jvm_args,
        "-cp",
        classpath,
        str(program),
        *(str(arg) for arg in args),
    ]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL if stdin is None else stdin,
        stdout=stdout,
        stderr=stderr,
        cwd=cwd,
        env=None if env is None else {**os.environ, **env},
    )


def run_java(
    main_class: str | Path,
    args: Sequence[str | Path] = (),
    *,
    stdin: bytes | None = None,
    timeout: float = 120.0,
    check: bool = True,
    jvm_args: Sequence[str] = TOOL_JVM_ARGS,
    log_level: str = "WARN",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs a Java program with *stdin* as its input, and returns its output as text.

    With *check*, a failure raises :class:`JavaFailed` with both outputs.
    """
    process = start_java(
        main_class,
        args,
        jvm_args=jvm_args,
        log_level=log_level,
        stdin=None if stdin is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=env,
    )
    try:
        out, err = process.communicate(stdin, timeout)
    except BaseException:
        process.kill()
        process.communicate()
        raise
    result = subprocess.CompletedProcess(
        process.args,
        process.returncode,
        out.decode("utf-8", "replace"),
        err.decode("utf-8", "replace"),
    )
    if check and result.returncode != 0:
        raise JavaFailed(f"{main_class} exited with status {result.returncode}\n{result.stdout}{result.stderr}")
    return result


def _say(text: str) -> None:
    print(f"[apache-kafka] {text}", file=sys.stderr, flush=True)


def cache_root() -> Path:
    configured = os.environ.get("HEADRACE_CACHE")
    return Path(configured) if configured else Path.home() / ".cache" / "headrace"


def fetch_jars(
    name: str,
    title: str,
    dependencies: Sequence[tuple[str, str, str]],
    *,
    files: Mapping[str, str] | None = None,
    transitive: bool = True,
) -> Path:
    """Returns a directory of the cache with the jars in its ``libs``. Fills it if it is missing or outdated.

    *dependencies* are group, artifact and version; their own dependencies are included unless *transitive* is false.
    """
    root = cache_root()
    home = root / name
    pom = _pom(dependencies, transitive)
    manifest = pom + "".join((files or {}).values())
    if _is_complete(home, manifest):
        return home
    try:
        root.mkdir(parents=True, exist_ok=True)
        # One lock for all: processes that write to Maven's own repository at the same time may damage it.
        with file_lock(root / "maven.lock"):
            if not _is_complete(home, manifest):
                _download(root, home, title, pom, {**(files or {}), "manifest": manifest})
    except OSError as error:
        raise KafkaUnavailable(f"the jar cache cannot be used: {error}") from error
    return home


def _is_complete(home: Path, manifest: str) -> bool:
    try:
        return (home / "manifest").read_text() == manifest
    except OSError:
        return False


@contextlib.contextmanager
def file_lock(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _download(root: Path, home: Path, title: str, pom: str, files: Mapping[str, str]) -> None:
    _require_command("mvn")
    _say(f"fetching {title} with Maven; this may take a minute")
    with tempfile.TemporaryDirectory(dir=root, prefix="fetch-") as name:
        work = Path(name)
        (work / "pom.xml").write_text(pom)
        new_home = work / "home"
        _run_installer(
            [
                "mvn",
                "-q",
                "-B",
                "-f",
                str(work / "pom.xml"),
                "dependency:copy-dependencies",
                "-DincludeScope=runtime",
                f"-DoutputDirectory={new_home / 'libs'}",
            ]
        )
        for file_name, text in files.items():
            (new_home / file_name).write_text(text)
        if home.exists():
            shutil.rmtree(home)
        new_home.rename(home)
    _say(f"{title} is ready")


def _pom(dependencies: Sequence[tuple[str, str, str]], transitive: bool) -> str:
    alone = (
        ""
        if transitive
        else "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    )
    listed = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version>{alone}</dependency>"
        for group, artifact, version in dependencies
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>headrace</groupId>"
        "<artifactId>kafka-jars</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{listed}</dependencies><build><pluginManagement><plugins><plugin>"
        "<groupId>org.apache.maven.plugins</groupId><artifactId>maven-dependency-plugin</artifactId>"
        f"<version>{_COPY_PLUGIN_VERSION}</version></plugin></plugins></pluginManagement></build>"
        "</project>\n"
    )


def require_java() -> None:
    """Ensures a Java that can run Kafka and Spark: installs one if possible, otherwise raises an error that says what
    is missing."""
    _require_command("java")
    shown = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(\d+)', shown.stderr + shown.stdout)
    if shown.returncode != 0 or found is None:
        raise KafkaUnavailable(f"java does not run: {shown.stderr.strip()}")
    if int(found[1]) < MINIMUM_JAVA:
        raise KafkaUnavailable(f"Java {found[1]} is too old, at least {MINIMUM_JAVA} is needed")


def _require_command(command: str) -> None:
    if shutil.which(command):
        return
    if not (hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get")):
        raise KafkaUnavailable(f"{command} is not installed")
    # The headless JDK, not only the JRE: .java files run from source.
    with apt_lock():
        if shutil.which(command):
            return
        _say("installing Java and Maven with apt-get; this may take some minutes")
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        _run_installer(["apt-get", "-q", "update"], env)
        _run_installer(["apt-get", "-qy", "install", "default-jdk-headless", "maven"], env)
    if not shutil.which(command):
        raise KafkaUnavailable(f"{command} is not installed and apt-get could not install it")


@contextlib.contextmanager
def apt_lock() -> Iterator[None]:
    """apt-get fails immediately while another one runs."""
    with file_lock(Path(tempfile.gettempdir()) / "headrace-apt.lock"):
        yield


def _run_installer(command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=env,
            timeout=INSTALL_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise KafkaUnavailable(f"{command[0]} took more than {INSTALL_TIMEOUT:.0f} s") from error
    except OSError as error:
        raise KafkaUnavailable(f"{command[0]} cannot run: {error}") from error
    if done.returncode != 0:
        tail = "\n".join(done.stdout.strip().splitlines()[-15:])
        raise KafkaUnavailable(f"{command[0]} failed with status {done.returncode}:\n{tail}")
