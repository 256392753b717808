"""One module for each API that the broker serves. `headrace.broker.dispatch` calls them."""

import importlib
import pkgutil


def load() -> None:
    """Imports all handler modules, which register themselves."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
