"""The clients have kafka-python's names, arguments, defaults and errors, except for documented differences."""

import inspect
from typing import Any

import kafka
import kafka.errors
import pytest
from tests.support.client.kafka_python import (
    STRUCTS,
    all_differences,
    documented_differences,
    kafka_python_errors,
    of_arguments,
)

import headrace
import headrace.aio
import headrace.errors


def test_documentation_lists_every_difference() -> None:
    """docs/kafka-python.md: a difference that is intended needs a row there, with the reason."""
    assert sorted(all_differences() - documented_differences().keys()) == []


def test_documentation_lists_no_other_difference() -> None:
    assert sorted(documented_differences().keys() - all_differences()) == []


def test_documentation_gives_reasons() -> None:
    assert [difference for difference, reason in documented_differences().items() if len(reason) < 10] == []


def test_differences_are_found() -> None:
    def theirs(a: int, b: int = 1, *, c: int = 2) -> None: ...

    def ours(a: int, c: int = 3, d: int = 1) -> None: ...

    assert list(of_arguments("f", theirs, theirs)) == []
    assert list(of_arguments("f", theirs, ours)) == ["f(b)", "f(c)"]
    assert list(of_arguments("f", lambda x=1: None, lambda x=2: None)) == ["f(x=1)"]


@pytest.mark.parametrize("name", ["Producer", "Consumer"])
def test_asyncio_clients_have_the_same_arguments(name: str) -> None:
    blocking, asynchronous = getattr(headrace, name), getattr(headrace.aio, name)
    for method, each in inspect.getmembers(blocking, inspect.isroutine):
        if not method.startswith("_"):
            expected = list(inspect.signature(each).parameters)
            assert list(inspect.signature(getattr(asynchronous, method)).parameters) == expected, method


@pytest.mark.parametrize("name", sorted(STRUCTS))
def test_tuples_are_interchangeable(name: str) -> None:
    theirs: Any = STRUCTS[name]
    ours = getattr(headrace, name)
    values = [f"value {number}" for number, _ in enumerate(theirs._fields)]
    if name == "ConsumerRecord":
        assert ours._fields == theirs._fields
        return
    assert ours(*values) == theirs(*values)
    assert hash(ours(*values)) == hash(theirs(*values))
    assert ours(*values)._asdict() == theirs(*values)._asdict()


@pytest.mark.parametrize("name", sorted(kafka_python_errors()))
def test_errors_have_no_other_base_classes(name: str) -> None:
    """`except` clauses catch the same errors. A test of the differences covers base classes that are missing here."""
    theirs, ours = kafka_python_errors()[name], getattr(headrace.errors, name)
    for base in ("BrokerResponseError", "AuthorizationError"):
        assert issubclass(ours, getattr(headrace.errors, base)) == issubclass(theirs, getattr(kafka.errors, base)), base
    if issubclass(theirs, kafka.errors.BrokerResponseError) and theirs.errno is not None:
        assert ours.message
        assert ours.description
