"""CRC-32C with processor instructions, from the extension module of the `crc32c` package.

The package itself is not imported: it imports its command line and reads its own version, which takes 3 MB and more
time than the rest of the client.
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
    places = None if package is None else package.submodule_search_locations
    spec = None if places is None else PathFinder.find_spec(name, places)
    if spec is None or spec.loader is None:
        # Packaged differently, for example in an archive.
        from crc32c import crc32c as found

        return found
    module: Any = module_from_spec(spec)
    spec.loader.exec_module(module)
    loaded: Crc = module.crc32c
    return loaded


crc32c = _load()
