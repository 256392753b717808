"""Registers `format("headrace")` with Spark, which looks for `DefaultSource` in modules named `pyspark_*`.

Spark imports this module in a Python process that looks for data sources. A failed import would hide the data sources
of all packages, so nothing here may raise: without PySpark or pyarrow there is no `DefaultSource` and no error.
"""

try:
    from headrace.spark.source import HeadraceDataSource as DefaultSource
except ImportError:
    pass
else:
    __all__ = ["DefaultSource"]
