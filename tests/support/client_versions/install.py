"""Installs versions of client libraries, each into its own directory of the cache.

A Python library is installed with pip for the Python version that its wheels need, and runs with that interpreter. The
interpreter is the one of the tests, or one from the PATH or from pyenv.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.apache_kafka.jvm import cache_root, file_lock

INSTALL_SECONDS = 300.0


class Unavailable(Exception):
    """A version cannot be installed or run on this machine; the message says why."""


class Installed(NamedTuple):
    python: str
    path: Path


def install(name: str, requirements: Sequence[str], python_versions: Sequence[str]) -> Installed:
    """Installs packages for the first of these Python versions that this machine has."""
    version, python = _find_python(python_versions)
    path = cache_root() / "client-versions" / f"{name}-py{version}"
    manifest = "\n".join(requirements)
    path.parent.mkdir(parents=True, exist_ok=True)
    with file_lock(path.with_name(f"{path.name}.lock")):
        complete = path / "manifest"
        if not complete.exists() or complete.read_text() != manifest:
            shutil.rmtree(path, ignore_errors=True)
            _run_pip(requirements, version, path)
            complete.write_text(manifest)
    return Installed(python, path)


def _run_pip(requirements: Sequence[str], version: str, path: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-warn-conflicts"]
    command += ["--only-binary=:all:", "--python-version", version, "--target", str(path), *requirements]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"pip took more than {INSTALL_SECONDS:.0f} s") from error
    if done.returncode:
        raise Unavailable(f"pip cannot install {' '.join(requirements)}: {done.stderr.strip()[-300:]}")


def _find_python(versions: Sequence[str]) -> tuple[str, str]:
    """Returns the version and the path of an interpreter. pyenv has shims on the PATH that may not run."""
    for version in versions:
        if version == "{}.{}".format(*sys.version_info):
            return version, sys.executable
        candidates = [shutil.which(f"python{version}")]
        pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
        candidates += map(str, sorted(pyenv.glob(f"{version}.*/bin/python"), reverse=True))
        for candidate in filter(None, candidates):
            if subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0:
                return version, candidate
    raise Unavailable(f"Python {' or '.join(versions)} is not installed")
