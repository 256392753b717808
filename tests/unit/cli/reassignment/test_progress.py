from typing import Any

import pytest
from tests.support.cli.fake_cluster import FakeCluster, StepClock

from headrace.cli.reassignment.facts import replica_sizes
from headrace.cli.reassignment.plan import Move
from headrace.cli.reassignment.progress import bytes_to_copy, print_plan, wait_until_done
from headrace.common.errors import NotControllerError
from headrace.common.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
MOVES = {T0: Move((1, 2), (3,), (3, 2)), T1: Move((2, 1), (3, 4), (3, 4))}
SIZE = 600_000_000


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster([1, 2, 3, 4], {tp: move.sources for tp, move in MOVES.items()})
    cluster.targets = {tp: move.targets for tp, move in MOVES.items()}
    cluster.sizes = {(tp, broker): SIZE for tp, move in MOVES.items() for broker in move.sources}
    return cluster


def test_bytes_to_copy() -> None:
    sizes = {(T0, 1): 50, (T0, 2): 70, (T0, 3): 30, (T1, 1): 1000}
    assert bytes_to_copy(T0, MOVES[T0], sizes) == {3: 40}
    assert bytes_to_copy(T1, MOVES[T1], sizes) == {3: 1000, 4: 1000}
    assert bytes_to_copy(T0, MOVES[T0], {}) == {3: 0}


def test_plan(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    before = {**cluster.replicas, TopicPartition("u", 0): (1, 2)}
    print_plan(before, before | cluster.targets, MOVES, replica_sizes(cluster, MOVES))  # type: ignore[arg-type]
    assert capsys.readouterr().out == (
        "\nPlan: 2 partitions, 3 replicas added, 3 removed, 1.8 GB to copy\n"
        "BROKER  REPLICAS BEFORE  AFTER  PREFERRED LEADERS BEFORE  AFTER  TO COPY\n"
        "     1                3      1                         2      1  0 B\n"
        "     2                3      2                         1      0  0 B\n"
        "     3                0      2                         0      2  1.2 GB\n"
        "     4                0      1                         0      0  600.0 MB\n\n"
    )


def test_plan_without_sizes(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    print_plan(cluster.replicas, cluster.replicas | {T0: (3, 2)}, {T0: MOVES[T0]}, None)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "Plan: 1 partition, 1 replica added, 1 removed"
    assert lines[-2].split() == ["3", "0", "1", "0", "1", "-"]


def wait(cluster: Any, clock: StepClock) -> None:
    wait_until_done(cluster, MOVES, replica_sizes(cluster, MOVES), clock)


def test_prints_a_line_per_change(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    wait(cluster, StepClock(lambda: None, lambda: cluster.finish(T1), lambda: None, cluster.finish))
    assert capsys.readouterr() == ("1 of 2 partitions done\n2 of 2 partitions done\n", "")


def test_shows_the_copied_bytes_on_a_terminal(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "200")

    def copy(tp: TopicPartition, broker: int, size: int) -> None:
        cluster.sizes[tp, broker] = size

    def complete(tp: TopicPartition) -> None:
        cluster.finish(tp)

    wait(cluster, StepClock(lambda: copy(T0, 3, 450_000_000), lambda: complete(T1), lambda: complete(T0)))
    shown = [line.strip() for line in capsys.readouterr().err.split("\r") if line.strip()]
    assert shown == [
        "25% · 450 of 1,800 MB · 450/s · 3 s left · 0 of 2 partitions done",
        "92% · 1,650 of 1,800 MB · 825/s · 0 s left · 1 of 2 partitions done",
    ]


def test_continues_after_errors(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = replica_sizes(cluster, MOVES)  # type: ignore[arg-type]
    cluster.failures = [NotControllerError("no controller")]
    clock = StepClock(lambda: None, cluster.finish)
    wait_until_done(cluster, MOVES, sizes, clock)  # type: ignore[arg-type]
    assert capsys.readouterr() == ("2 of 2 partitions done\n", "no controller; retrying\n")


def test_gives_metadata_some_time(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    targets, cluster.targets = cluster.targets, {}
    clock = StepClock(lambda: None, lambda: None, lambda: cluster.replicas.update(targets))
    wait(cluster, clock)
    assert clock.monotonic() == pytest.approx(0.3)
    cluster.replicas[T0] = (1, 2)  # cancelled
    clock = StepClock(lambda: None)
    wait(cluster, clock)
    assert clock.monotonic() >= 10
    assert capsys.readouterr().out == "2 of 2 partitions done\n" * 2
