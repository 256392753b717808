"""A cache for column expressions that are the same in every batch. Driver only.

Every PySpark function is a call into the JVM. It takes about as long as Spark needs for a thousand small rows, and a
wide select has hundreds of these calls. A column is only an expression: it names its inputs and fits any frame that
has them.
"""

from collections.abc import Callable, Hashable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def cached_column(create: Callable[P, T]) -> Callable[P, T]:
    """Caches the result of a function by its arguments, for as long as the same JVM runs."""
    columns: dict[Hashable, T] = {}

    @wraps(create)
    def get(*args: P.args, **kwargs: P.kwargs) -> T:
        from pyspark import SparkContext

        key = (SparkContext._gateway, args, tuple(kwargs.items()))
        if key not in columns:
            columns[key] = create(*args, **kwargs)
        return columns[key]

    return get
