from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.broker.admin_broker import AdminBroker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[AdminBroker]:
    with AdminBroker(tmp_path / "data", num_partitions=2) as broker:
        yield broker
