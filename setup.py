"""Builds the compiled modules (record kernel, codec, the clients' hot paths). pyproject.toml contains everything else.

HEADRACE_CFLAGS adds compiler and linker flags. The tests use it to build with AddressSanitizer.
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

extra_flags = os.environ.get("HEADRACE_CFLAGS", "").split()
source_root = Path("src")

extensions = [
    Extension(
        ".".join(source.relative_to(source_root).with_suffix("").parts),
        [str(source)],
        extra_compile_args=["-O3", "-fno-strict-aliasing", "-Wno-unused-function", *extra_flags],
        extra_link_args=extra_flags,
    )
    for source in sorted(source_root.rglob("*.pyx"))
]

setup(
    options={"build_ext": {"parallel": os.cpu_count() or 1}},
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
    ),
)
