"""Makes Spark find `format("headrace")` by itself: it looks for `DefaultSource` in modules named `pyspark_*`.

Imported by a Python process that Spark starts to look for data sources. An import that fails would hide the data
sources of all packages, so nothing here may raise: without PySpark or pyarrow there is no `DefaultSource`, and no
error.
"""

try:
    from headrace.spark.source import HeadraceDataSource as DefaultSource
except ImportError:
    pass
else:
    __all__ = ["DefaultSource"]
