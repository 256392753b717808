"""Compiled modules built with AddressSanitizer and UndefinedBehaviorSanitizer, and Python with them.

A copy of the sources is built in which only one package has compiled modules: what is tested there needs no others.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parents[3]
FLAGS = "-fsanitize=address,undefined -fno-wrapv -fno-omit-frame-pointer -O1 -g1"
FUZZ_ROUNDS = int(os.environ.get("HEADRACE_FUZZ_ROUNDS", "1000"))


def sanitizer_library(name: str) -> str:
    found = subprocess.run(
        ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert Path(found).is_absolute(), f"gcc has no {name}: install it to run these tests"
    return found


@dataclass(frozen=True)
class SanitizedPackage:
    source: Path

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs Python with the sanitized modules in front of the ordinary ones."""
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(self.source), str(PROJECT)]),
            "LD_PRELOAD": f"{sanitizer_library('libasan.so')} {sanitizer_library('libubsan.so')}",
            # Python's own allocator would hide where one object ends and the next begins.
            "PYTHONMALLOC": "malloc",
            "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
            "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        }
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=480 + FUZZ_ROUNDS
        )


def build_sanitized(directory: Path, package: str) -> SanitizedPackage:
    """Builds the compiled modules of `headrace.<package>` in a copy of the sources."""
    source = directory / "src"
    shutil.copytree(PROJECT / "src", source, ignore=shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info"))
    for path in source.rglob("*.pyx"):
        if not path.is_relative_to(source / "headrace" / package):
            path.unlink()
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(PROJECT / name, directory / name)
    build = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace", "--build-temp", "objects", "-j", "2"],
        cwd=directory,
        env=os.environ | {"HEADRACE_CFLAGS": FLAGS},
        capture_output=True,
        text=True,
    )
    assert build.returncode == 0, build.stdout + build.stderr
    return SanitizedPackage(source)
