"""CRC-32C with hardware instructions: loads the extension module of the `crc32c` package without the package.

Importing the package would also import its command line and read its own version. That takes 3 MB, and more time than
importing the rest of the client.
"""

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any

__all__ = ["crc32c"]

Crc = Callable[..., int]


def _load() -> Crc:
    name = "crc32c._crc32c"
    package = find_spec("crc32c")
    locations = None if package is None else package.submodule_search_locations
    spec = None if locations is None else PathFinder.find_spec(name, locations)
    if spec is None or spec.loader is None:
        # The extension module was not found as a file, for example because the package is in an archive.
        from crc32c import crc32c as function

        return function
    module: Any = module_from_spec(spec)
    spec.loader.exec_module(module)
    accelerated: Crc = module.crc32c
    return accelerated


crc32c = _load()
