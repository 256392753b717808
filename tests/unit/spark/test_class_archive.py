"""The archive of Spark's classes: created once, published when it is complete, replaced when anything changes."""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from headrace.spark.class_archive import archive_options, cache_directory
from headrace.testing.clock import ManualClock

COMPLETE = bytes.fromhex("a8ab0bf0") + b"the rest"
DAY_MS = 86_400_000


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("")
    (home / "release").write_text('JAVA_VERSION="17.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(home))
    return home


def options(tmp_path: Path, jvm_options: str = "-Xmx1g", version: str = "4.3.0", **keywords: Any) -> list[str]:
    return archive_options("/spark", version, jvm_options, cache=tmp_path / "cache", **keywords)


def file_of(options: list[str], option: str) -> Path:
    found = re.search(rf"-XX:{option}=(\S+)", " ".join(options))
    assert found, options
    return Path(found[1])


@pytest.mark.usefixtures("java")
def test_the_first_jvm_creates_the_archive_and_later_ones_use_it(tmp_path: Path) -> None:
    first, concurrent = (file_of(options(tmp_path), "ArchiveClassesAtExit") for _ in range(2))
    assert first != concurrent
    first.write_bytes(COMPLETE)
    concurrent.write_bytes(b"\0\0\0\0 its header is still missing")
    archive = file_of(options(tmp_path), "SharedArchiveFile")
    assert archive.read_bytes() == COMPLETE
    assert not first.exists()
    assert concurrent.exists(), "its JVM is still writing it"
    concurrent.write_bytes(COMPLETE)
    assert file_of(options(tmp_path), "SharedArchiveFile") == archive
    assert not concurrent.exists()


@pytest.mark.usefixtures("java")
def test_incomplete_archives_of_killed_jvms_are_deleted(tmp_path: Path) -> None:
    clock = ManualClock(1_790_000_000_000)
    incomplete = file_of(options(tmp_path, clock=clock), "ArchiveClassesAtExit")
    incomplete.write_bytes(b"")
    os.utime(incomplete, (clock.time_ms() / 1000, clock.time_ms() / 1000))
    options(tmp_path, clock=clock)
    assert incomplete.exists()
    clock.advance(2 * 3_600_000)
    options(tmp_path, clock=clock)
    assert not incomplete.exists()


def test_everything_that_the_archive_depends_on_changes_its_name(tmp_path: Path, java: Path) -> None:
    def name(**keywords: Any) -> str:
        return file_of(options(tmp_path, **keywords), "ArchiveClassesAtExit").name.partition(".")[0]

    names = [name(), name(version="4.4.0"), name(jvm_options="-Xmx2g")]
    (java / "release").write_text('JAVA_VERSION="21.0.1"')
    names.append(name())
    assert len(set(names)) == 4
    assert name() == names[-1]


@pytest.mark.usefixtures("java")
def test_archives_of_other_applications_are_kept(tmp_path: Path) -> None:
    for version in ("4.3.0", "4.4.0"):
        file_of(options(tmp_path, version=version), "ArchiveClassesAtExit").write_bytes(COMPLETE)
        file_of(options(tmp_path), "SharedArchiveFile")
    assert file_of(options(tmp_path, version="4.4.0"), "SharedArchiveFile").exists()


@pytest.mark.usefixtures("java")
def test_archives_without_use_are_deleted(tmp_path: Path) -> None:
    clock = ManualClock(1_790_000_000_000)
    file_of(options(tmp_path, clock=clock), "ArchiveClassesAtExit").write_bytes(COMPLETE)
    used = file_of(options(tmp_path, clock=clock), "SharedArchiveFile")
    clock.advance(20 * DAY_MS)
    assert file_of(options(tmp_path, clock=clock), "SharedArchiveFile") == used
    clock.advance(20 * DAY_MS)
    options(tmp_path, version="4.4.0", clock=clock)
    assert used.exists(), "it was used 20 days ago"
    clock.advance(20 * DAY_MS)
    options(tmp_path, version="4.4.0", clock=clock)
    assert not used.exists()


@pytest.mark.usefixtures("java")
@pytest.mark.parametrize("option", ["-Xshare:off", "-XX:SharedArchiveFile=/mine.jsa"])
def test_leaves_archives_to_a_user_who_sets_them(tmp_path: Path, option: str) -> None:
    assert options(tmp_path, option) == []


def test_does_without_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert options(tmp_path) == []


def test_does_without_a_cache_directory(tmp_path: Path, java: Path) -> None:
    (tmp_path / "cache").write_text("a file where the directory should be")
    assert options(tmp_path) == []


def test_cache_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_CACHE", "/elsewhere")
    assert cache_directory() == Path("/elsewhere")
    monkeypatch.delenv("HEADRACE_CACHE")
    assert cache_directory() == Path.home() / ".cache" / "headrace"
