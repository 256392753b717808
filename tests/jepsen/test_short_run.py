"""Three brokers on ZooKeeper in network namespaces under kills, pauses and partitions, judged by the checker.

`HEADRACE_JEPSEN_MINUTES` makes it a long run with all faults and four brokers. `HEADRACE_SEED` repeats the choice of
faults and operations. Only anomalies and a cluster that does not recover are failures: how far the clients get is not
judged.
"""

import os
from pathlib import Path

import pytest
from tests.jepsen.run.faults import Faults
from tests.jepsen.run.machines import FaketimeUnavailable
from tests.jepsen.run.network import NetworkUnavailable
from tests.jepsen.run.runner import RunConfig, run
from tests.support.seeds import choose_seed

MINUTES = float(os.environ.get("HEADRACE_JEPSEN_MINUTES", "0"))


@pytest.mark.timeout(MINUTES * 60 + 1800)
def test_no_anomalies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seed = choose_seed()
    if MINUTES:
        config = RunConfig(seconds=MINUTES * 60, seed=seed, faults=Faults.names(), brokers=4)
    else:
        config = RunConfig(
            seconds=20, seed=seed, faults=("kill", "pause", "partition"), shortest_fault=4, longest_fault=7, workers=3
        )
    try:
        report = run(config, tmp_path / "run")
    except (NetworkUnavailable, FaketimeUnavailable) as error:
        pytest.skip(f"no network namespaces: {error}")
    with capsys.disabled():
        print(f"\n{report.describe()}")
    assert report.verdict.is_valid, report.describe()
