"""The status of a flow as JSON."""

import json

import pytest

from headrace.pipelines.status import FAILED, RUNNING, STARTING, STOPPED, BatchStatus, FlowStatus

STATUS = FlowStatus(
    "orders",
    "large",
    state=RUNNING,
    sources={"orders": {"topics": ["orders"], "pattern": None}},
    source_topics=("orders",),
    updated_ms=100_000,
    last_batch=BatchStatus(3, 90_000, 500, 10, {"large_orders": 4}, phases_ms={"addBatch": 400}),
    dead_letters_by_reason={"not JSON": 2, "größer": 1},
)


def test_json_has_all_fields_and_is_read_back() -> None:
    assert FlowStatus.from_json(STATUS.to_json()) == STATUS
    document = json.loads(STATUS.to_json())
    assert (document["version"], document["last_batch"]["rows_out"]) == (1, {"large_orders": 4})
    assert STATUS.key == "orders/large"


def test_reader_ignores_unknown_fields_and_accepts_missing_ones() -> None:
    status = FlowStatus.from_json('{"pipeline": "p", "flow": "f", "later": 1, "last_batch": {"id": 2, "later": 3}}')
    assert status == FlowStatus("p", "f", last_batch=BatchStatus(2))


@pytest.mark.parametrize("value", ["", "[]", "{}", '{"pipeline": "p", "flow": 1}'])
def test_other_values_are_refused(value: str) -> None:
    with pytest.raises(ValueError):
        FlowStatus.from_json(value)


@pytest.mark.parametrize(("state", "is_lost"), [(STARTING, True), (RUNNING, True), (STOPPED, False), (FAILED, False)])
def test_driver_is_lost_after_missed_heartbeats(state: str, is_lost: bool) -> None:
    status = FlowStatus("p", "f", state=state, updated_ms=100_000)
    assert not status.is_lost(130_000)
    assert status.is_lost(130_001) == is_lost
