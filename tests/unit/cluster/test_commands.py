"""Results of the controller's commands."""

from tests.support.cluster.state_machines import TP

from headrace.cluster.commands import CommandResult


def test_command_result_errors() -> None:
    assert CommandResult().error_of(TP) == 0
    assert CommandResult(0, {TP: 56}).error_of(TP) == 56
    assert CommandResult(11, {TP: 56}).error_of(TP) == 11
