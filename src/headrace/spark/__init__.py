"""Topics as Spark data frames, both ways: `format("headrace")` for `spark.read`, `readStream`, `write`, `writeStream`.

Spark finds the format automatically (`pyspark_headrace`), without an import. `session` creates a Spark session with
suitable settings. The names below are imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from headrace.common.extras import requires_extra

if TYPE_CHECKING:
    from headrace.spark.sessions import session
    from headrace.spark.source import HeadraceDataSource

__all__ = ["HeadraceDataSource", "session"]

_MODULES = {"HeadraceDataSource": "headrace.spark.source", "session": "headrace.spark.sessions"}


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with requires_extra("spark"):
        return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
