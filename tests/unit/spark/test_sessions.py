"""The workaround for PySpark's import of pandas at the first call into the JVM."""

import sys

import numpy as np
import pytest
from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter

from headrace.spark.sessions import skip_numpy_checks


@pytest.fixture(autouse=True)
def skipped() -> None:
    skip_numpy_checks()
    skip_numpy_checks()


def test_numpy_objects_are_still_converted() -> None:
    assert NumpyScalarConverter().can_convert(np.int64(1))
    assert NumpyArrayConverter().can_convert(np.array([1]))
    assert not NumpyScalarConverter().can_convert(1)


def test_without_numpy_nothing_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "numpy")
    monkeypatch.setitem(sys.modules, "pyspark.testing.utils", None)  # an import of it would raise
    assert not NumpyScalarConverter().can_convert(1)
    assert not NumpyArrayConverter().can_convert([1])
