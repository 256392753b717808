"""Topics as Spark data frames, both ways: `format("headrace")` for `spark.read`, `readStream`, `write`, `writeStream`.

Spark finds the format by itself (`pyspark_headrace`); nothing here has to be imported for it. `session` makes a Spark
session with settings that suit it. The names below are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from headrace.common.extras import requires_extra

if TYPE_CHECKING:
    from headrace.spark.sessions import session
    from headrace.spark.source import HeadraceDataSource

__all__ = ["HeadraceDataSource", "session"]

_HOMES = {"HeadraceDataSource": "headrace.spark.source", "session": "headrace.spark.sessions"}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with requires_extra("spark"):
        return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
