"""The `cluster` benchmark: tiny loads and failovers of small clusters yield plausible figures; no speed is checked."""

from pathlib import Path

from bench import cluster, cluster_failover
from bench.broker_sides import Headrace
from bench.cluster_sides import SECONDS, Cluster
from bench.harness import Measurement

TINY = cluster.Sizes(small_batches=1, large_batches=1, consumed=1, pace_seconds=1, warmup=0, settle_seconds=0)
PARTITIONS = 12


def test_failover(tmp_path: Path) -> None:
    with Cluster(Headrace, tmp_path / "cluster") as running:
        seconds = cluster_failover.measure(running, PARTITIONS)
        assert len(running.running) == 2, "the controller was not killed"
    assert list(seconds) == [
        "creation",
        "leaderless after SIGKILL",
        "leaderless during controlled shutdown",
        "duration of controlled shutdown",
        "failover of the controller",
    ]
    assert all(0 <= value < SECONDS for value in seconds.values())
    assert seconds["duration of controlled shutdown"] > seconds["leaderless during controlled shutdown"]


def test_load(tmp_path: Path) -> None:
    """Both sides are Headrace, which needs no download."""
    parts: list[list[Measurement]] = []
    measurements, notes = cluster.run(
        tmp_path,
        1,
        sizes=TINY,
        kinds=(Headrace, Headrace),
        only="load",
        after_part=lambda measurements, _: parts.append(measurements),
    )
    assert parts == [measurements]
    cases = {measured.name: measured for measured in measurements}
    assert {name for name in cases if "CPU" not in name and "memory" not in name} == {
        "produce, 16 KB batches, acks all",
        "produce, 1 MB batches, acks all",
        "consume",
        "produce of one record at 1,000/s, acks all, p50",
        "produce of one record at 1,000/s, acks all, p99",
    }
    assert all(measured.ours > 0 and measured.theirs > 0 for measured in measurements)
    # A broker needs some tens of MB.
    assert 3 * 10 < cases["memory of the brokers idle, PSS"].ours < 3 * 500
    assert any(note.startswith("Load averages") for note in notes)
