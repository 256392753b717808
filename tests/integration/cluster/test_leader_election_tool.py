"""`headrace leader-election` on a cluster."""

import json
from pathlib import Path

from click.testing import CliRunner, Result

from headrace.cli.main import main
from headrace.testing import EmbeddedCluster


def test_leader_election(tmp_path: Path) -> None:
    with EmbeddedCluster(2, replication_factor=2) as cluster:
        cluster.create_topic("t", assignment={0: [1, 2], 1: [2, 1]})

        def run(*args: str) -> Result:
            given = ["leader-election", "--bootstrap-server", cluster.bootstrap_servers, *args]
            return CliRunner().invoke(main, given, prog_name="headrace")

        preferred = ("--election-type", "preferred")
        ran = run(*preferred, "--topic", "t", "--partition", "0")
        assert (ran.exit_code, ran.stdout) == (0, "Valid replica already elected for partitions t-0\n")
        cluster.restart(1)
        cluster.wait_until_in_sync("t")
        ran = run(*preferred, "--all-topic-partitions")
        assert (ran.exit_code, ran.stdout) == (
            0,
            "Successfully completed leader election (PREFERRED) for partitions t-0\n",
        )
        assert cluster.leader("t", 0) == 1
        file = tmp_path / "partitions.json"
        file.write_text('{"partitions": [{"topic": "t", "partition": 1}, {"topic": "t", "partition": 9}]}')
        ran = run(*preferred, "--path-to-json-file", str(file))
        assert ran.exit_code == 1
        assert ran.stdout.splitlines() == [
            "Valid replica already elected for partitions t-1",
            "Error completing leader election (PREFERRED) for partition: t-9: Partition t-9 does not exist.",
        ]
        assert ran.stderr == "headrace leader-election: 1 replica(s) could not be elected\n"
        ran = run(*preferred, "--path-to-json-file", str(file), "--json")
        assert json.loads(ran.stdout)["not_needed"] == [{"topic": "t", "partition": 1}]
        file.write_text("{}")
        assert "KeyError" in run(*preferred, "--path-to-json-file", str(file)).stderr
        assert "only allowed together" in run(*preferred, "--topic", "t").stderr
        assert "Expected exactly one" in run(*preferred).stderr
