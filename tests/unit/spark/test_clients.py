"""Cached clients, the lazy package, the worker daemon, and the registration of the format."""

import importlib
import subprocess
import sys

import pytest

from headrace.spark import clients
from headrace.spark.source import HeadraceDataSource


class Client:
    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture(autouse=True)
def _no_clients_are_left() -> object:
    yield
    clients.close_all()


def test_equal_configs_share_a_client() -> None:
    one = clients.config_key("x", {"a": "1", "b": "2"})
    other = clients.config_key("x", {"b": "2", "a": "1"})
    first = clients.cached(one, Client)
    assert clients.cached(other, Client) is first
    assert clients.cached(clients.config_key("y", {"a": "1", "b": "2"}), Client) is not first
    assert clients.cached(clients.config_key("x", {"a": "1", "b": "3"}), Client) is not first


def test_discarded_client_is_replaced() -> None:
    first = clients.cached("k", Client)
    clients.discard("k")
    clients.discard("k")
    assert first.is_closed
    assert clients.cached("k", Client) is not first


def test_evicts_the_least_recently_used_client() -> None:
    first = clients.cached(0, Client)
    second = clients.cached(1, Client)
    for key in range(2, 32):
        clients.cached(key, Client)
    clients.cached(0, Client)
    clients.cached(32, Client)
    assert second.is_closed
    assert not first.is_closed


def test_spark_finds_the_format() -> None:
    module = importlib.import_module("pyspark_headrace")
    assert module.DefaultSource is HeadraceDataSource
    assert module.DefaultSource.name() == "headrace"


def test_module_without_pyspark_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("headrace.spark", "pyspark_headrace"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark.sql.datasource", None)
    assert not hasattr(importlib.import_module("pyspark_headrace"), "DefaultSource")


def test_package_exports_its_names_lazily() -> None:
    import headrace.spark
    from headrace.spark import session
    from headrace.spark.sessions import session as defined_session

    assert session is defined_session is headrace.spark.session
    assert "session" in dir(headrace.spark)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        headrace.spark.nothing  # noqa: B018


def test_daemon_has_no_threads_when_it_forks() -> None:
    code = (
        "import os, sys; from headrace.spark import daemon\n"
        "for names in daemon._MODULES_BY_WORKER.values(): [daemon.import_module(name) for name in names]\n"
        "print(len(os.listdir('/proc/self/task')), 'pyarrow' in sys.modules, 'numpy' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["1", "False", "False"]
