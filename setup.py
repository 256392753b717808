"""Builds the compiled modules (the record kernel and the codec); the rest about the package is in pyproject.toml.

HEADRACE_CFLAGS adds compiler and linker flags, which is how the tests build them under AddressSanitizer.
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

extra_flags = os.environ.get("HEADRACE_CFLAGS", "").split()
rooms = ("records", "protocol")

extensions = [
    Extension(
        f"headrace.{room}.{source.stem}",
        [str(source)],
        extra_compile_args=["-O3", "-fno-strict-aliasing", "-Wno-unused-function", *extra_flags],
        extra_link_args=extra_flags,
    )
    for room in rooms
    for source in sorted(Path("src/headrace", room).glob("*.pyx"))
]

setup(
    ext_modules=cythonize(
        extensions,
        include_path=["src"],
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": False,
            "embedsignature": True,
        },
    )
)
