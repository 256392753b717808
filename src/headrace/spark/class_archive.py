"""An archive of the classes that Spark's JVM loads (AppCDS), so that the JVM does not parse and verify them again.

Runs in the driver, before the JVM starts. The archive halves the JVM's processor time until the first batch. It takes
about 160 MB in the cache directory: `HEADRACE_CACHE`, or `~/.cache/headrace`.

    first JVM       writes `<key>.<random>.new` when it exits (-XX:ArchiveClassesAtExit)
    next start      renames a finished `.new` to `<key>.jsa`
    later JVMs      map `<key>.jsa` (-XX:SharedArchiveFile)

Invariants:
- The archive is an optimization: without a writable cache directory there is none, and the JVM ignores an archive that
  is damaged or does not fit its class path (-Xshare:auto, its default).
- Concurrent starts never share a file that is being written. The JVM writes the header last, so a `.new` file with a
  header is complete.
- The key contains everything that the archive depends on: Java, Spark, the class path and the JVM's options.
"""

import hashlib
import logging
import os
import re
import shutil
from pathlib import Path

from headrace.common.clock import Clock, SystemClock
from headrace.common.ids import make_random

__all__ = ["archive_options", "cache_directory"]

_logger = logging.getLogger(__name__)
_HEADER = bytes.fromhex("f00baba8")
"""The first bytes of an archive of this kind, in the byte order of the machine."""
_UNUSED_SECONDS = 30 * 86_400
"""Archives that nothing has used for this long are deleted."""
_ABANDONED_SECONDS = 3_600
"""An incomplete archive of this age belongs to a JVM that was killed."""
_USER_ARCHIVE = re.compile(r"-Xshare|SharedArchiveFile|ArchiveClassesAtExit|AutoCreateSharedArchive")
_QUIET = "-Xlog:cds*=off"
"""The JVM would print warnings about classes that it cannot archive, and about an archive that it ignores."""


def cache_directory() -> Path:
    """Returns the directory for files that can be created again at any time."""
    configured = os.environ.get("HEADRACE_CACHE")
    return Path(configured) if configured else Path.home() / ".cache" / "headrace"


def archive_options(
    spark_home: str, spark_version: str, jvm_options: str, *, clock: Clock | None = None, cache: Path | None = None
) -> list[str]:
    """Returns the JVM options that use the archive, or create it when the JVM exits. None if that is not possible."""
    java = _java()
    if java is None or _USER_ARCHIVE.search(jvm_options):
        return []
    clock = clock or SystemClock()
    try:
        directory = (cache or cache_directory()) / "class-archives"
        directory.mkdir(parents=True, exist_ok=True)
        key = _key(java, spark_home, spark_version, jvm_options)
        archive = directory / f"{key}.jsa"
        _publish(directory, clock)
        _delete_unused(directory, clock)
        if archive.exists():
            now = clock.time_ms() / 1000
            os.utime(archive, (now, archive.stat().st_mtime))
            return [_QUIET, f"-XX:SharedArchiveFile={archive}"]
        name = f"{key}.{make_random().getrandbits(48):012x}.new"
        return [_QUIET, f"-XX:ArchiveClassesAtExit={directory / name}"]
    except OSError as error:
        _logger.info("Spark starts without an archive of its classes: %s", error)
        return []


def _java() -> Path | None:
    """Returns the `java` that Spark's scripts run."""
    home = os.environ.get("JAVA_HOME")
    found = Path(home) / "bin" / "java" if home else shutil.which("java")
    return Path(found).resolve() if found and Path(found).exists() else None


def _key(java: Path, spark_home: str, spark_version: str, jvm_options: str) -> str:
    release = java.parents[1] / "release"
    release_text = release.read_text(errors="replace") if release.exists() else ""
    parts = (str(java), str(java.stat().st_mtime_ns), release_text, spark_home, spark_version, jvm_options)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


def _publish(directory: Path, clock: Clock) -> None:
    """Renames finished archives. Deletes further ones of the same key, and abandoned ones."""
    for new in sorted(directory.glob("*.new")):
        archive = directory / f"{new.name.partition('.')[0]}.jsa"
        try:
            if not _is_complete(new):
                if clock.time_ms() / 1000 - new.stat().st_mtime > _ABANDONED_SECONDS:
                    new.unlink()
            elif archive.exists():
                new.unlink()
            else:
                new.rename(archive)
        except FileNotFoundError:
            continue  # another process was faster


def _is_complete(file: Path) -> bool:
    with file.open("rb") as content:
        header = content.read(len(_HEADER))
    return header in (_HEADER, _HEADER[::-1])


def _delete_unused(directory: Path, clock: Clock) -> None:
    for archive in directory.glob("*.jsa"):
        try:
            if clock.time_ms() / 1000 - archive.stat().st_atime > _UNUSED_SECONDS:
                archive.unlink()
        except FileNotFoundError:
            continue  # another process was faster
