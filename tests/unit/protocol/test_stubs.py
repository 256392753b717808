"""The stubs match the compiled modules: the same public names."""

import ast
import importlib
from pathlib import Path

import pytest

import headrace.protocol

STUBS = sorted(Path(headrace.protocol.__file__).parent.glob("*.pyi"))


def test_every_compiled_module_has_a_stub() -> None:
    sources = Path(headrace.protocol.__file__).parent.glob("*.pyx")
    assert [path.stem for path in STUBS] == sorted(path.stem for path in sources)


@pytest.mark.parametrize("stub", STUBS, ids=lambda path: path.stem)
def test_names_of_the_module(stub: Path) -> None:
    module = importlib.import_module(f"headrace.protocol.{stub.stem}")
    compiled = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    }
    statements = ast.parse(stub.read_text()).body
    assert compiled == {each.name for each in statements if isinstance(each, ast.ClassDef | ast.FunctionDef)}


def test_the_package_exports_names_that_exist() -> None:
    exported = headrace.protocol.__all__
    assert len(set(exported)) == len(exported)
    assert [name for name in exported if not hasattr(headrace.protocol, name)] == []
