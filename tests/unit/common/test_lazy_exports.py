import subprocess
import sys

import pytest

import headrace
import headrace.aio
import headrace.net


@pytest.mark.parametrize("package", [headrace, headrace.aio, headrace.net])
def test_every_exported_name_can_be_imported(package: object) -> None:
    for name in package.__all__:  # type: ignore[attr-defined]
        assert getattr(package, name) is not None
        assert name in dir(package)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'headrace' has no attribute 'Nothing'"):
        headrace.Nothing  # noqa: B018


def test_importing_the_package_imports_no_client() -> None:
    code = "import sys, headrace; print([name for name in sys.modules if name.startswith('headrace.client')])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
