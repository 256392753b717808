"""The stubs match the compiled modules: the same public names and members."""

import ast
import importlib
import inspect
from pathlib import Path
from typing import Any

import pytest

import headrace.common.errors
import headrace.records
import headrace.records.compression

STUBS = sorted(Path(headrace.records.__file__).parent.glob("*.pyi"))
IMPORTED_FROM = (headrace.common.errors, headrace.records.compression)


def is_type_variable(value: ast.expr) -> bool:
    """Returns True for `TypeVar(...)`, which only the stub needs."""
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "TypeVar"


def members(body: list[ast.stmt]) -> set[str]:
    """Returns the public names that statements define."""
    names = set()
    for statement in body:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef):
            names.add(statement.name)
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            names.add(statement.target.id)
        elif isinstance(statement, ast.Assign) and not is_type_variable(statement.value):
            names |= {target.id for target in statement.targets if isinstance(target, ast.Name)}
    return {name for name in names if not name.startswith("_")}


def is_imported(module: Any, name: str) -> bool:
    """Returns True if a module has a name only because it imports it."""
    value = getattr(module, name)
    if inspect.ismodule(value):
        return True
    if inspect.isclass(value) or callable(value):
        return value.__module__ != module.__name__
    return any(name in vars(other) for other in IMPORTED_FROM)


def test_every_compiled_module_has_a_stub() -> None:
    sources = Path(headrace.records.__file__).parent.glob("*.pyx")
    assert [path.stem for path in STUBS] == sorted(path.stem for path in sources)
    assert len(STUBS) >= 4


@pytest.mark.parametrize("stub", STUBS, ids=lambda path: path.stem)
def test_names_of_the_module(stub: Path) -> None:
    module = importlib.import_module(f"headrace.records.{stub.stem}")
    compiled = {name for name in dir(module) if not name.startswith("_") and not is_imported(module, name)}
    assert compiled == members(ast.parse(stub.read_text()).body)


@pytest.mark.parametrize("stub", STUBS, ids=lambda path: path.stem)
def test_members_of_its_classes(stub: Path) -> None:
    module = importlib.import_module(f"headrace.records.{stub.stem}")
    for statement in ast.parse(stub.read_text()).body:
        if isinstance(statement, ast.ClassDef):
            compiled = {name for name in dir(getattr(module, statement.name)) if not name.startswith("_")}
            assert compiled == members(statement.body), statement.name


@pytest.mark.parametrize("stub", STUBS, ids=lambda path: path.stem)
def test_special_methods_of_its_classes(stub: Path) -> None:
    """The special methods in a stub, such as `__len__`, exist."""
    module = importlib.import_module(f"headrace.records.{stub.stem}")
    for statement in ast.parse(stub.read_text()).body:
        if isinstance(statement, ast.ClassDef):
            special = {item.name for item in statement.body if isinstance(item, ast.FunctionDef)} - members(
                statement.body
            )
            assert special <= set(dir(getattr(module, statement.name))), statement.name
            assert ("__len__" in special) == hasattr(getattr(module, statement.name), "__len__"), statement.name


def test_the_package_exports_names_that_exist() -> None:
    exported = headrace.records.__all__
    assert sorted(set(exported)) == sorted(exported)
    assert [name for name in exported if not hasattr(headrace.records, name)] == []
