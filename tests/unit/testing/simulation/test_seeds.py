"""A run by its seed, with one broker. The simulations of clusters are in `tests/sim/cluster`."""

from headrace.testing.simulation.seeds import run_seed


def test_the_same_seed_gives_the_same_run() -> None:
    first, again = (run_seed(3, replication_factor=1, brokers=1) for _ in range(2))
    assert first == again
    assert first.acknowledged
    assert first.read
    assert first.faults
