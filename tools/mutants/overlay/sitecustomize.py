"""Replaces one module by its mutated source. Python imports this file at the start of each test process, and of each
process that a test starts, because its directory is on PYTHONPATH.

    HEADRACE_MUTANT=headrace.storage.log:/path/to/mutated.py

Creates the file `/path/to/mutated.py.used` when the module is imported.
"""

import importlib.util
import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec


class MutantFinder(MetaPathFinder):
    """Finds the mutated module before the real one."""

    def __init__(self, module: str, path: str):
        self._module = module
        self._path = path

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:  # noqa: ARG002
        if fullname != self._module:
            return None
        with open(f"{self._path}.used", "w"):
            pass
        return importlib.util.spec_from_file_location(fullname, self._path)


_mutant = os.environ.get("HEADRACE_MUTANT")
if _mutant:
    sys.meta_path.insert(0, MutantFinder(*_mutant.split(":", 1)))
