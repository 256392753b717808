"""`headrace reassign-partitions` on a cluster."""

import json
from pathlib import Path

from click.testing import CliRunner, Result

import headrace
from headrace.admin import ConfigResource
from headrace.cli.main import main
from headrace.testing import EmbeddedCluster


def run(cluster: EmbeddedCluster, *args: str) -> Result:
    given = ["reassign-partitions", "--bootstrap-server", cluster.bootstrap_servers, *args]
    return CliRunner().invoke(main, given, prog_name="headrace")


def test_generated_plan_is_executed(tmp_path: Path) -> None:
    racks = {broker: {"broker.rack": rack} for broker, rack in enumerate("aab", 1)}
    with EmbeddedCluster(3, broker_properties=racks, replication_factor=1) as cluster:
        cluster.create_topic("t", assignment={0: [1, 2], 1: [1, 2], 2: [1, 2]})
        topics, plan = tmp_path / "topics.json", tmp_path / "plan.json"
        topics.write_text('{"version": 1, "topics": [{"topic": "t"}]}')

        def generate(*args: str) -> Result:
            return run(cluster, "--generate", "--topics-to-move-json-file", str(topics), *args)

        ran = generate("--broker-list", "2,3,7")
        assert ran.stderr == "Broker 7 is not running: the proposed assignment does not use it\n"
        title, current, empty, second_title, proposed = ran.stdout.splitlines()
        assert (title, empty) == ("Current partition replica assignment", "")
        assert second_title == "Proposed partition reassignment configuration"
        assert [each["replicas"] for each in json.loads(current)["partitions"]] == [[1, 2]] * 3
        assert all(sorted(each["replicas"]) == [2, 3] for each in json.loads(proposed)["partitions"])
        plan.write_text(proposed)
        ran = run(cluster, "--execute", "--reassignment-json-file", str(plan), "--wait")
        assert ran.exit_code == 0, ran.output
        assert "\nPlan: 3 partitions, 3 replicas added, 3 removed, " in ran.stdout
        assert ran.stdout.endswith(
            "3 of 3 partitions done\nStatus of partition reassignment:\n"
            + "".join(f"Reassignment of partition t-{index} is completed.\n" for index in range(3))
            + "\n"
        )
        assert run(cluster, "--list").stdout == "No partition reassignments found.\n"
        assert "more than the 1 brokers" in generate("--broker-list", "3").stderr
        assert "duplicate entries: 3" in generate("--broker-list", "3,3").stderr
        assert "expected comma-separated" in generate("--broker-list", "x").stderr
        assert "--generate needs" in generate().stderr
        topics.write_text('{"version": 1, "topics": [{"topic": "missing"}]}')
        assert "does not exist" in generate("--broker-list", "1").stderr


def throttles(admin: headrace.Admin) -> dict[str, dict[str, str | None]]:
    """Returns the throttles that are set, by broker and topic."""
    resources = [ConfigResource("broker", str(broker)) for broker in (1, 2, 3)] + [ConfigResource("topic", "t")]
    return {
        resource.name: {key: entry.value for key, entry in described.entries.items() if "replication.throttled" in key}
        for resource, described in admin.describe_configs(resources, config_filter="modified").items()
    }


def test_throttle(tmp_path: Path) -> None:
    with (
        EmbeddedCluster(3, replication_factor=1) as cluster,
        headrace.Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
    ):
        cluster.create_topic("t", assignment={0: [1]})
        file = tmp_path / "plan.json"
        file.write_text('{"partitions": [{"topic": "t", "partition": 0, "replicas": [2]}]}')
        on_file = ("--reassignment-json-file", str(file))
        cluster.partition(1, 2)  # the reassignment stays in progress
        for rate in ("1000", "2000000"):
            ran = run(cluster, "--execute", *on_file, "--additional", "--throttle", rate)
            assert ran.exit_code == 0, ran.output
            rates = dict.fromkeys(("leader.replication.throttled.rate", "follower.replication.throttled.rate"), rate)
            assert throttles(admin) == {
                "1": rates,
                "2": rates,
                "3": {},
                "t": {
                    "leader.replication.throttled.replicas": "0:1",
                    "follower.replication.throttled.replicas": "0:2",
                },
            }
        assert "Clearing" not in run(cluster, "--verify", *on_file).stdout
        cluster.heal()
        cluster.wait_until(lambda: not admin.list_partition_reassignments())
        verified = run(cluster, "--verify", *on_file)
        assert verified.stdout.endswith(
            "Reassignment of partition t-0 is completed.\n\n"
            "Clearing broker-level throttles on brokers 1,2,3\n"
            "Clearing topic-level throttles on topic t\n"
        )
        assert throttles(admin) == {"1": {}, "2": {}, "3": {}, "t": {}}


def test_reassign_partitions(tmp_path: Path) -> None:
    with EmbeddedCluster(3, replication_factor=1) as cluster:
        cluster.create_topic("t", assignment={0: [1], 1: [2]})
        file = tmp_path / "plan.json"

        def on_file(action: str, *args: str) -> Result:
            return run(cluster, action, "--reassignment-json-file", str(file), *args)

        def plan(*targets: tuple[int, list[int]]) -> None:
            entries = [{"topic": "t", "partition": index, "replicas": replicas} for index, replicas in targets]
            file.write_text(json.dumps({"version": 1, "partitions": entries}))

        def is_done() -> bool:
            return "in progress" not in on_file("--verify").stdout

        plan((0, [2]), (1, [3, 1]))
        assert run(cluster, "--list").stdout == "No partition reassignments found.\n"
        no_moves = "None of the specified partition moves are active.\n"
        cancelled = on_file("--cancel", "--preserve-throttles").stdout
        assert cancelled == f"None of the specified partition reassignments are active.\n{no_moves}"
        assert on_file("--verify", "--preserve-throttles").stdout == (
            "Status of partition reassignment:\n"
            "There is no active reassignment of partition t-0, but replica set is 1 rather than 2.\n"
            "There is no active reassignment of partition t-1, but replica set is 2 rather than 3,1.\n\n"
        )
        refused = on_file("--execute", "--disallow-replication-factor-change")
        assert refused.exit_code == 1
        assert "t-1: The replication factor is changed from 1 to 2" in refused.stderr
        cluster.wait_until(is_done)
        ran = on_file("--execute", "--additional")
        assert ran.exit_code == 0, ran.output
        assert '"topic":"t","partition":1,"replicas":[2],"log_dirs":["any"]}' in ran.stdout
        assert ran.stdout.endswith("Successfully started partition reassignments for t-0,t-1\n")
        cluster.wait_until(is_done)
        assert on_file("--verify").stdout == (
            "Status of partition reassignment:\n"
            "Reassignment of partition t-0 is completed.\n"
            "Reassignment of partition t-1 is completed.\n\n"
            "Clearing broker-level throttles on brokers 1,2,3\n"
            "Clearing topic-level throttles on topic t\n"
        )
        # The new replica cannot reach its leader: the reassignment stays in progress, until it is cancelled.
        cluster.partition(1, 2)
        plan((0, [1]))
        assert on_file("--execute").exit_code == 0
        listed = run(cluster, "--list").stdout
        assert listed == "Current partition reassignments:\nt-0: replicas: 1,2. adding: 1. removing: 2.\n"
        assert on_file("--verify").stdout.endswith("Reassignment of partition t-0 is still in progress.\n\n")
        # Broker 3 reaches the controller, so it learns the new replicas soon.
        topics = ["topics", "--bootstrap-server", cluster.brokers[3].bootstrap_servers, "--describe", "--topic", "t"]

        def describe(*flags: str) -> Result:
            return CliRunner().invoke(main, [*topics, *flags], prog_name="headrace")

        expected = "\tReplicas: 1,2\tIsr: 2\tAdding Replicas: 1\tRemoving Replicas: 2\t"
        cluster.wait_until(lambda: expected in describe().stdout)
        filtered = describe("--under-replicated-partitions")
        assert (filtered.exit_code, filtered.output) == (0, "")
        assert "Use --additional" in on_file("--execute").stderr
        cancelled = on_file("--cancel").stdout
        assert cancelled.startswith(
            f"Successfully cancelled partition reassignment for: t-0\n{no_moves}Clearing broker"
        )
        cluster.heal()
        plan((0, [9]))
        assert "Unknown broker id 9" in on_file("--execute").stderr
        file.write_text('{"partitions": [{"topic": "t"}]}')
        assert "is not a reassignment" in on_file("--verify").stderr
        assert "needs --reassignment-json-file" in run(cluster, "--execute").stderr
