import sys

import pytest

from headrace.common.errors import HeadraceError
from headrace.common.extras import MissingExtraError, requires_extra


def test_names_the_extra_of_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    expected = r"needs pyarrow.*pip install 'headrace\[arrow\]'"
    with pytest.raises(MissingExtraError, match=expected) as raised, requires_extra("arrow"):
        import pyarrow  # noqa: F401
    assert isinstance(raised.value, HeadraceError)
    assert isinstance(raised.value, ImportError)


def test_names_the_extra_of_a_missing_submodule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(MissingExtraError, match=r"headrace\[spark\]"), requires_extra("spark"):
        import pyspark.sql  # noqa: F401


def test_propagates_other_import_errors() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module") as raised, requires_extra("arrow"):
        import no_such_module  # noqa: F401
    assert not isinstance(raised.value, MissingExtraError)
