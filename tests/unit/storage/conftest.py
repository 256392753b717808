from pathlib import Path
from typing import Any

import pytest
from tests.support.storage.logs import MakeLog, MakeManager, Properties, new_log, new_manager

from headrace.storage.log import Log
from headrace.storage.manager import LogManager
from headrace.testing.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def make_log(tmp_path: Path, clock: ManualClock) -> MakeLog:
    """Opens the log `orders-0` in the test's directory with topic properties and the options of `new_log`."""

    def make(properties: Properties | None = None, **options: Any) -> Log:
        return new_log(tmp_path, clock, properties, **options)

    return make


@pytest.fixture
def make_manager(tmp_path: Path, clock: ManualClock) -> MakeManager:
    """Creates a manager of the test's directory with the arguments of `new_manager`."""

    def make(*names: str, **options: Any) -> LogManager:
        return new_manager([tmp_path / name for name in names or ("data",)], clock, **options)

    return make
