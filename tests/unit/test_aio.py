"""The public clients: every method has a docstring, and blocking and asyncio clients match."""

import inspect

import pytest

import headrace
import headrace.aio

PAIRS = [
    (headrace.Producer, headrace.aio.Producer, {"start", "stop", "send_and_wait"}),
    (headrace.Consumer, headrace.aio.Consumer, {"start", "stop", "getone", "getmany"}),
    (headrace.Admin, headrace.aio.Admin, set()),
]


def methods(cls: type) -> dict[str, object]:
    return {name: each for name, each in inspect.getmembers(cls, callable) if not name.startswith("_")}


@pytest.mark.parametrize("cls", [cls for pair in PAIRS for cls in pair[:2]], ids=lambda cls: f"{cls.__module__}")
def test_every_method_has_a_docstring(cls: type) -> None:
    assert [name for name, each in methods(cls).items() if not inspect.getdoc(each)] == []
    assert inspect.getdoc(cls)


@pytest.mark.parametrize(("blocking", "asyncio", "more"), PAIRS, ids=["producer", "consumer", "admin"])
def test_blocking_and_asyncio_clients_have_the_same_methods(blocking: type, asyncio: type, more: set[str]) -> None:
    assert set(methods(asyncio)) - set(methods(blocking)) == more
    assert set(methods(blocking)) <= set(methods(asyncio))


@pytest.mark.parametrize(("blocking", "asyncio", "more"), PAIRS, ids=["producer", "consumer", "admin"])
def test_blocking_and_asyncio_methods_take_the_same_arguments(blocking: type, asyncio: type, more: set[str]) -> None:
    for name in sorted(set(methods(asyncio)) - more):
        ours, theirs = (list(inspect.signature(getattr(cls, name)).parameters) for cls in (blocking, asyncio))
        assert ours == theirs, name


@pytest.mark.parametrize("cls", [headrace.Producer, headrace.aio.Producer], ids=["blocking", "asyncio"])
def test_producer_exposes_only_methods(cls: type) -> None:
    assert {name for name in dir(cls) if not name.startswith("_")} == set(methods(cls))
