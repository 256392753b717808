"""State changes of a classic group."""

import pytest

from headrace.common.errors import HeadraceError
from headrace.coordinator.group.classic_group import PREDECESSORS, ClassicGroup, GroupState


@pytest.mark.parametrize("state", GroupState)
def test_rejects_illegal_state_changes(state: GroupState) -> None:
    for before in GroupState:
        group = ClassicGroup("g", 0, before)
        if before in PREDECESSORS[state]:
            group.transition(state, 7)
            assert (group.state, group.state_timestamp_ms) == (state, 7)
        else:
            with pytest.raises(HeadraceError, match="cannot change from"):
                group.transition(state, 7)
