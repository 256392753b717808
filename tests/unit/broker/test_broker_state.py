import logging

import pytest

from headrace.broker.broker_state import BrokerLifecycle, BrokerState
from headrace.common.errors import HeadraceError


def test_a_whole_life(caplog: pytest.LogCaptureFixture) -> None:
    lifecycle = BrokerLifecycle(3)
    with caplog.at_level(logging.INFO):
        for state in (
            BrokerState.STARTING,
            BrokerState.RECOVERY,
            BrokerState.RUNNING,
            BrokerState.PENDING_CONTROLLED_SHUTDOWN,
            BrokerState.SHUTTING_DOWN,
            BrokerState.NOT_RUNNING,
        ):
            lifecycle.enter(state)
            assert lifecycle.state is state
    assert "Broker 3 changes its state from RECOVERY to RUNNING" in caplog.text


def test_numbers_are_kafkas() -> None:
    assert [int(state) for state in BrokerState] == [0, 1, 2, 3, 6, 7]


def test_refuses_other_changes() -> None:
    lifecycle = BrokerLifecycle(3)
    with pytest.raises(HeadraceError, match="Broker 3 cannot change from NOT_RUNNING to RUNNING"):
        lifecycle.enter(BrokerState.RUNNING)
    assert lifecycle.state is BrokerState.NOT_RUNNING
