import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.support.cli.fake_cluster import FakeCluster, StepClock

from headrace.cli.common.connection import Connection
from headrace.cli.main import main
from headrace.client.types import TopicPartitionReplica
from headrace.common.errors import ClusterAuthorizationFailedError
from headrace.common.types import TopicPartition

TOOL_MODULE = "headrace.cli.reassignment.reassign_partitions"
Tool = Callable[..., Result]
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
RATES = {"leader.replication.throttled.rate": "1000", "follower.replication.throttled.rate": "1000"}
CLEARED = "Clearing broker-level throttles on brokers 1,2,3,4\nClearing topic-level throttles on topics t,u\n"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    cluster = FakeCluster([1, 2, 3, 4], {T0: (1, 2), T1: (2, 1), U0: (1,)})
    monkeypatch.setattr(Connection, "admin", lambda _: cluster.admin())
    return cluster


@pytest.fixture
def tool(tmp_path: Path) -> Tool:
    """Runs the tool with a file of these replicas, by default: t-0 and u-0 move."""

    def run(
        *args: str,
        plan: dict[TopicPartition, list[int]] | None = None,
        log_dirs: dict[TopicPartition, list[str]] | None = None,
    ) -> Result:
        entries: list[dict[str, object]] = [
            {**tp._asdict(), "replicas": replicas} for tp, replicas in (plan or {T0: [2, 3], U0: [4]}).items()
        ]
        for entry, (_, directories) in zip(entries, (log_dirs or {}).items(), strict=False):
            entry["log_dirs"] = directories
        file = tmp_path / "plan.json"
        file.write_text(json.dumps({"version": 1, "partitions": entries}))
        given = ["reassign-partitions", "--bootstrap-server", "h:1", *args, "--reassignment-json-file", str(file)]
        return CliRunner().invoke(main, given, prog_name="headrace")

    return run


def test_throttle_is_set_before_and_removed_after_the_move(cluster: FakeCluster, tool: Tool) -> None:
    ran = tool("--execute", "--throttle", "1000")
    assert ran.exit_code == 0, ran.output
    warning, limit, started = ran.stdout.splitlines()[-3:]
    assert warning.startswith("Warning: You must run --verify periodically")
    assert limit == "The inter-broker throttle limit was set to 1000 B/s"
    assert started == "Successfully started partition reassignments for t-0,u-0"
    throttled = {
        ("topic", "t"): {
            "leader.replication.throttled.replicas": "0:1,0:2",
            "follower.replication.throttled.replicas": "0:3",
        },
        ("topic", "u"): {
            "leader.replication.throttled.replicas": "0:1",
            "follower.replication.throttled.replicas": "0:4",
        },
        **{("broker", str(broker)): RATES for broker in (1, 2, 3, 4)},
    }
    assert cluster.configs == throttled
    assert tool("--verify").stdout == (
        "Status of partition reassignment:\n"
        "Reassignment of partition t-0 is still in progress.\n"
        "Reassignment of partition u-0 is still in progress.\n\n"
    )
    assert cluster.configs == throttled
    cluster.finish()
    done = (
        "Status of partition reassignment:\n"
        "Reassignment of partition t-0 is completed.\n"
        "Reassignment of partition u-0 is completed.\n\n"
    )
    assert tool("--verify", "--preserve-throttles").stdout == done
    assert cluster.configs == throttled
    assert tool("--verify").stdout == done + CLEARED
    assert cluster.configs == {}


def test_throttles_remain_while_another_reassignment_is_in_progress(cluster: FakeCluster, tool: Tool) -> None:
    tool("--execute", "--throttle", "1000")
    cluster.finish()
    cluster.targets[T1] = (3, 4)
    assert "Clearing" not in tool("--verify").stdout
    assert ("topic", "t") in cluster.configs


def test_throttle_of_a_running_reassignment_is_changed(cluster: FakeCluster, tool: Tool) -> None:
    assert tool("--execute").exit_code == 0
    assert cluster.configs == {}
    refused = tool("--execute", "--throttle", "5")
    assert (refused.exit_code, cluster.configs) == (1, {})
    assert "can also be used to change the throttle" in refused.stderr
    cluster.targets[T1] = (4, 1)  # another reassignment keeps its throttle
    for rate in ("5", "6"):
        assert tool("--execute", "--additional", "--throttle", rate).exit_code == 0
        assert cluster.configs["topic", "t"] == {
            "leader.replication.throttled.replicas": "0:1,0:2,1:1,1:2",
            "follower.replication.throttled.replicas": "0:3,1:4",
        }
        assert {cluster.configs["broker", str(one)][key] for one in (1, 2, 3, 4) for key in RATES} == {rate}


def test_cancellation_removes_throttles(cluster: FakeCluster, tool: Tool) -> None:
    tool("--execute", "--throttle", "1000")
    assert tool("--cancel", "--preserve-throttles").stdout == (
        "Successfully cancelled partition reassignments for: t-0,u-0\n"
        "None of the specified partition moves are active.\n"
    )
    assert len(cluster.configs) == 6
    assert tool("--cancel").stdout == (
        "None of the specified partition reassignments are active.\n"
        f"None of the specified partition moves are active.\n{CLEARED}"
    )
    assert cluster.configs == {}


def test_nothing_is_throttled_if_the_plan_is_wrong(cluster: FakeCluster, tool: Tool) -> None:
    ran = tool("--execute", "--throttle", "1000", plan={T0: [2, 9]})
    assert "Unknown broker id 9" in ran.stderr
    ran = tool("--execute", "--throttle", "1000", plan={T0: [2], TopicPartition("t", 7): [2]})
    assert "Unable to find partition: t-7" in ran.stderr
    assert cluster.configs == {}
    cluster.refuses = True
    ran = tool("--execute", "--throttle", "1000")
    assert ran.exit_code == 1
    assert "u-0: refused. The throttle remains until --verify or --cancel removes it" in ran.stderr


def test_stopped_brokers_are_named(cluster: FakeCluster, tool: Tool) -> None:
    cluster.brokers.remove(1)
    ran = tool("--execute", "--throttle", "1000")
    assert ran.exit_code == 0
    assert ran.stderr == "Broker 1 is not running: no throttle was set there\n"
    assert ("broker", "1") not in cluster.configs
    cluster.finish()
    cluster.brokers.remove(4)
    del cluster.configs["broker", "4"]
    ran = tool("--verify")
    assert ran.exit_code == 1
    assert "Broker 4 is not running, so its throttles could not be cleared" in ran.stderr
    assert cluster.configs == {}


def test_throttles_of_deleted_topics_are_ignored(cluster: FakeCluster, tool: Tool) -> None:
    tool("--execute", "--throttle", "1000")
    cluster.finish()
    del cluster.replicas[U0], cluster.configs["topic", "u"]
    ran = tool("--verify")
    assert "but replica set is  rather than 4." in ran.stdout
    assert "Clearing topic-level throttles on topic t\n" in ran.stdout
    assert cluster.configs == {}


def test_wait_shows_the_plan_and_removes_the_throttle(
    cluster: FakeCluster, tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{TOOL_MODULE}.SystemClock", lambda: StepClock(lambda: cluster.finish(U0), cluster.finish))
    ran = tool("--execute", "--wait", "--throttle", "1000")
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert ran.stdout.endswith(
        "Successfully started partition reassignments for t-0,u-0\n"
        "1 of 2 partitions done\n"
        "2 of 2 partitions done\n"
        "Status of partition reassignment:\n"
        "Reassignment of partition t-0 is completed.\n"
        f"Reassignment of partition u-0 is completed.\n\n{CLEARED}"
    )
    assert ran.stdout.index("Plan: 2 partitions, 2 replicas added, 2 removed") < ran.stdout.index("throttle limit")
    assert cluster.configs == {}


def test_wait_fails_if_the_reassignment_is_cancelled(
    cluster: FakeCluster, tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{TOOL_MODULE}.SystemClock", lambda: StepClock(cluster.targets.clear))
    cluster.configs["broker", "1"] = RATES
    ran = tool("--execute", "--wait")
    assert ran.exit_code == 1
    assert "no active reassignment of partition t-0, but replica set is 1,2 rather than 2,3." in ran.stdout
    assert "The reassignment did not complete" in ran.stderr
    assert cluster.configs["broker", "1"] == RATES  # another operator's


def test_wait_is_interrupted(cluster: FakeCluster, tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"{TOOL_MODULE}.SystemClock", lambda: StepClock(interrupt))
    ran = tool("--execute", "--wait", "--throttle", "1000")
    assert ran.exit_code == 130
    assert "The reassignment continues. --verify shows when it is done and removes the throttle" in ran.stderr
    assert cluster.targets


def test_wait_without_sizes(cluster: FakeCluster, tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{TOOL_MODULE}.SystemClock", lambda: StepClock(cluster.finish))
    monkeypatch.setattr(cluster, "describe_log_dirs", refuse)
    ran = tool("--execute", "--wait")
    assert ran.exit_code == 0
    assert ran.stderr == "The sizes of the replicas are unknown: not authorized\n"


def refuse(*_: object, **__: object) -> None:
    raise ClusterAuthorizationFailedError("not authorized")


LOG_DIRS_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
REPLICA = TopicPartitionReplica("t", 0, 2)


def test_moves_between_log_directories(cluster: FakeCluster, tool: Tool) -> None:
    cluster.log_dirs = {REPLICA: ("/one", None)}
    plan = {T0: [2, 3]}
    log_dirs = {T0: ["/two", "any"]}
    ran = tool("--verify", "--preserve-throttles", plan=plan, log_dirs=log_dirs)
    assert "Partition t-0 on broker 2 is not being moved from log dir /one to /two.\n" in ran.stdout
    ran = tool("--execute", "--replica-alter-log-dirs-throttle", "500", plan=plan, log_dirs=log_dirs)
    assert ran.exit_code == 0, ran.output
    assert ran.stdout.splitlines()[-3:] == [
        "The replica-alter-dir throttle limit was set to 500 B/s",
        "Successfully started partition reassignment for t-0",
        "Successfully started log directory move for: t-0-2",
    ]
    assert cluster.configs == {("broker", "2"): {LOG_DIRS_RATE: "500"}}
    cluster.finish()
    ran = tool("--verify", plan=plan, log_dirs=log_dirs)
    assert "Reassignment of replica t-0-2 is still in progress.\n" in ran.stdout
    assert cluster.configs  # as long as replicas move
    ran = tool("--verify", plan=plan, log_dirs={T0: ["/three", "any"]})
    assert "Partition t-0 on broker 2 is being moved to log dir /two instead of /three.\n" in ran.stdout
    ran = tool("--cancel", "--preserve-throttles", plan=plan, log_dirs=log_dirs)
    assert ran.stdout.endswith("Successfully started log directory move for: t-0-2\n")
    assert cluster.log_dirs[REPLICA] == ("/one", None)
    cluster.log_dirs[REPLICA] = ("/two", None)
    ran = tool("--verify", plan=plan, log_dirs=log_dirs)
    assert "Reassignment of replica t-0-2 completed successfully.\n" in ran.stdout
    assert not cluster.configs


def test_log_directories_of_replicas_that_do_not_exist_yet(cluster: FakeCluster, tool: Tool) -> None:
    log_dirs = {T0: ["any", "/two"]}
    ran = tool("--verify", "--preserve-throttles", plan={T0: [2, 3]}, log_dirs=log_dirs)
    assert "Partition t-0 is not found in any live log dir on broker 3." in ran.stdout
    ran = tool("--execute", "--timeout", "0", plan={T0: [2, 3]}, log_dirs=log_dirs)
    assert ran.exit_code == 1
    assert "Timed out before log directory move could be started for: t-0-3" in ran.stderr
    cluster.log_dirs = {TopicPartitionReplica("t", 0, 3): ("/one", None)}
    ran = tool("--execute", "--additional", plan={T0: [2, 3]}, log_dirs={T0: ["any", "/nowhere"]})
    assert "Failed to alter dir for t-0-3: no such directory" in ran.stderr


def test_waits_for_moves_between_log_directories(
    cluster: FakeCluster, tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.log_dirs = {REPLICA: ("/one", None)}
    cluster.replicas[T0] = (2, 3)

    def moved() -> None:
        cluster.finish()
        cluster.log_dirs[REPLICA] = ("/two", None)

    monkeypatch.setattr(f"{TOOL_MODULE}.SystemClock", lambda: StepClock(moved))
    throttle = ("--replica-alter-log-dirs-throttle", "500")
    ran = tool("--execute", "--wait", *throttle, plan={T0: [2, 3]}, log_dirs={T0: ["/two", "any"]})
    assert ran.exit_code == 0, ran.output
    assert "Plan of moves between log directories\nBROKER  TO LOG DIRECTORY  REPLICAS  TO COPY\n" in ran.stdout
    assert "Reassignment of replica t-0-2 completed successfully." in ran.stdout
    assert not cluster.configs


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--verify", "--throttle", "5"], "--throttle is only allowed with --execute"),
        (["--execute", "--throttle", "0"], "0 is not in the range"),
        (["--execute", "--preserve-throttles"], "only allowed with --verify and --cancel"),
        (["--verify", "--replica-alter-log-dirs-throttle", "5"], "only allowed with --execute"),
        (["--execute", "--replica-alter-log-dirs-throttle", "0"], "0 is not in the range"),
        (["--verify", "--wait"], "--wait is only allowed with --execute"),
        (["--execute", "--broker-list", "1"], "--broker-list is only allowed with --generate"),
        (["--generate"], "--reassignment-json-file is only allowed with"),
    ],
)
def test_wrong_flags(tool: Tool, args: list[str], message: str) -> None:
    ran = tool(*args)
    assert ran.exit_code == 1
    assert message in ran.stderr
