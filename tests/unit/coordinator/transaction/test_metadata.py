"""State changes of transactions."""

import pytest

from headrace.common.errors import HeadraceError
from headrace.coordinator.transaction.metadata import PREDECESSORS, TransactionMetadata, TransactionState


@pytest.mark.parametrize("target", TransactionState)
def test_rejects_illegal_state_changes(target: TransactionState) -> None:
    for source in TransactionState:
        transaction = TransactionMetadata("orders", 1, 0, 1000, state=source)
        if source in PREDECESSORS[target]:
            assert transaction.to(target, 5).state is target
        else:
            with pytest.raises(HeadraceError, match="cannot change from"):
                transaction.to(target, 5)
