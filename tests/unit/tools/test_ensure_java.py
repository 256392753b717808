"""`tools/ensure_java` with fake Java programs."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "tools" / "ensure_java"


def pretend(home: Path, version: str) -> Path:
    """Creates a fake Java of a version."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f"#!/bin/sh\necho '    java.home = {home}' >&2\necho '    java.specification.version = {version}' >&2\n"
    )
    program.chmod(0o755)
    return home


def ensure(
    java_home: Path | None = None, path: Path | None = None, places: str = ""
) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": os.pathsep.join([*([str(path)] if path else []), "/usr/bin", "/bin"]),
        "JAVA_PLACES": places or "/nowhere",
        "ENSURE_JAVA_ONLY_LOOK": "1",
    }
    if java_home is not None:
        environment["JAVA_HOME"] = str(java_home)
    return subprocess.run(["/bin/sh", str(SCRIPT)], env=environment, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("version", ["17", "21", "25"])
def test_uses_java_home(tmp_path: Path, version: str) -> None:
    home = pretend(tmp_path / "java", version)
    ran = ensure(java_home=home)
    assert (ran.returncode, ran.stdout) == (0, f"{home}\n")


@pytest.mark.parametrize("version", ["1.8", "11", "16"])
def test_ignores_old_java(tmp_path: Path, version: str) -> None:
    old, new = pretend(tmp_path / "old", version), pretend(tmp_path / "new", "17")
    ran = ensure(java_home=old, path=new / "bin")
    assert (ran.returncode, ran.stdout) == (0, f"{new}\n")
    ran = ensure(java_home=old, path=old / "bin", places=f"{tmp_path}/*/bin/java")
    assert (ran.returncode, ran.stdout) == (0, f"{new}\n")


def test_explains_how_to_install_java(tmp_path: Path) -> None:
    old = pretend(tmp_path / "old", "11")
    ran = ensure(java_home=tmp_path / "nothing", path=old / "bin")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "Spark needs Java 17 or newer" in ran.stderr
    assert "apt-get install" in ran.stderr
    assert "JAVA_HOME" in ran.stderr
