from headrace.client.admin.types import ClusterDescription
from headrace.console.history import History
from headrace.console.history_recorder import record
from headrace.console.snapshot import GroupState, Snapshot
from headrace.testing.clock import ManualClock


def test_groups_have_series_of_what_they_do_until_they_are_deleted() -> None:
    history = History(ManualClock(), 24)
    snapshot = Snapshot(0, ClusterDescription("c", 1, ()))
    snapshot.groups["g"] = GroupState("g", "Stable", lag=0, lag_seconds=0.0, consumed=0.0)
    record(history, snapshot)
    assert set(history.names()) == {"under_replicated", "group.lag:g"}
    snapshot.groups["g"].lag_seconds = 5.0
    record(history, snapshot)
    snapshot.groups["g"].lag_seconds = 0.0
    record(history, snapshot)
    assert "group.lag_seconds:g" in history
    snapshot.groups.clear()
    snapshot.not_read["groups"] = "no right"
    record(history, snapshot)
    assert "group.lag:g" in history, "perhaps it still exists"
    snapshot.not_read.clear()
    record(history, snapshot)
    assert history.names() == ["under_replicated"]
