"""Names of a package that are imported on first use, so that importing the package costs next to nothing.

    __getattr__, __dir__ = lazy_exports(__name__, {"Producer": "headrace.client.producer.producer"})

Type checkers and editors see the names through imports under `TYPE_CHECKING`.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_exports(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Returns `__getattr__` and `__dir__` of a package that exports each name from the module that defines it."""

    def get_attribute(name: str) -> object:
        module = modules.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(module), name)

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return get_attribute, list_names
