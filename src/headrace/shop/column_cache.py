"""Columns that are the same in every batch, made once. Driver only.

Each function of PySpark is a call into the JVM, which takes about as long as Spark needs for a thousand small rows; a
wide select has hundreds of them. A column is only a recipe: it names its inputs, and fits any frame that has them.
"""

from collections.abc import Callable, Hashable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def cached_column(make: Callable[P, T]) -> Callable[P, T]:
    """What a function returned, for the same arguments and as long as the same JVM runs."""
    made: dict[Hashable, T] = {}

    @wraps(make)
    def get(*args: P.args, **kwargs: P.kwargs) -> T:
        from pyspark import SparkContext

        key = (SparkContext._gateway, args, tuple(kwargs.items()))
        if key not in made:
            made[key] = make(*args, **kwargs)
        return made[key]

    return get
