"""`topics --describe` and its filters while partitions are being reassigned."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from headrace.cli.common.connection import Connection
from headrace.cli.main import main
from headrace.client.admin.types import OngoingReassignment, PartitionDescription, TopicDescription
from headrace.client.errors import KafkaTimeoutError
from headrace.common.errors import ClusterAuthorizationFailedError, KafkaError, UnsupportedVersionError
from headrace.common.ids import ZERO_UUID
from headrace.common.types import TopicPartition

MOVING = OngoingReassignment((3, 4, 1, 2), (3, 4), (1, 2))


class Admin:
    """A cluster with brokers 1 to 4 and one topic."""

    def __init__(
        self,
        partitions: Sequence[PartitionDescription],
        reassignments: dict[int, OngoingReassignment] | KafkaError | None = None,
    ):
        self.topic = TopicDescription("t", ZERO_UUID, False, tuple(partitions))
        self.reassignments = reassignments or {}

    def list_topics(self, *, include_internal: bool) -> list[str]:
        return ["t"]

    def api_versions(self) -> dict[int, Any]:
        return {}

    def describe_topics(self, names: Sequence[str]) -> dict[str, TopicDescription]:
        return dict.fromkeys(names, self.topic)

    def describe_configs(self, resources: Any) -> Any:
        entry = SimpleNamespace(value="2", is_default=True, source=SimpleNamespace(name="DEFAULT_CONFIG"))
        return {resource: SimpleNamespace(entries={"min.insync.replicas": entry}) for resource in resources}

    def describe_cluster(self) -> Any:
        return SimpleNamespace(brokers=[SimpleNamespace(id=broker) for broker in (1, 2, 3, 4)])

    def list_partition_reassignments(self, timeout_ms: float) -> dict[TopicPartition, OngoingReassignment]:
        assert timeout_ms > 0
        if isinstance(self.reassignments, KafkaError):
            raise self.reassignments
        return {TopicPartition("t", index): found for index, found in self.reassignments.items()}


@pytest.fixture
def describe(monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(admin: Admin, *flags: str) -> Result:
        @contextmanager
        def connected(_: Connection) -> Iterator[Admin]:
            yield admin

        monkeypatch.setattr(Connection, "admin", connected)
        given = ["topics", "--bootstrap-server", "nowhere:1", "--describe", "--topic", "t", *flags]
        return CliRunner().invoke(main, given, prog_name="headrace")

    return run


def described(result: Result) -> list[int]:
    """Returns the partitions in the output."""
    assert result.exit_code == 0, result.output
    lines = [line for line in result.stdout.splitlines() if line.startswith("\t")]
    return [int(line.split("\t")[2].removeprefix("Partition: ")) for line in lines]


def test_replicas_that_a_reassignment_adds_are_not_missing(describe: Any) -> None:
    partitions = [
        PartitionDescription(0, 1, replicas=(3, 4, 1, 2), isr=(1, 2)),
        PartitionDescription(1, 1, replicas=(3, 4, 1, 2), isr=(1,)),
        PartitionDescription(2, 1, replicas=(1, 2), isr=(1,)),
        # The reassignment began after the topic was described.
        PartitionDescription(3, 1, replicas=(1, 2), isr=(1, 2)),
    ]
    admin = Admin(partitions, {0: MOVING, 1: MOVING, 3: MOVING})
    assert described(describe(admin, "--under-replicated-partitions")) == [1, 2]


def test_reassignments_are_shown_as_by_kafkas_tool(describe: Any) -> None:
    partitions = [
        PartitionDescription(0, 1, replicas=(3, 4, 1, 2), isr=(1, 2)),
        PartitionDescription(1, 1, replicas=(1, 2), isr=(1, 2)),
    ]
    admin = Admin(partitions, {0: MOVING})
    summary, moving, other = describe(admin).stdout.splitlines()
    assert "\tReplicationFactor: 2\t" in summary
    assert "\tIsr: 1,2\tAdding Replicas: 3,4\tRemoving Replicas: 1,2\tElr: N/A\t" in moving
    assert "\tIsr: 1,2\tElr: N/A\t" in other
    (topic,) = json.loads(describe(admin, "--json").stdout)
    assert topic["replication_factor"] == 2
    assert [one["adding_replicas"] for one in topic["partitions"]] == [[3, 4], []]


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("--under-min-isr-partitions", [1, 2]),
        ("--at-min-isr-partitions", [0, 3]),
        ("--unavailable-partitions", [2, 3]),
    ],
)
def test_filters_by_leader_and_in_sync_replicas(describe: Any, flag: str, expected: list[int]) -> None:
    partitions = [
        PartitionDescription(0, 1, replicas=(1, 2, 3), isr=(1, 2)),
        PartitionDescription(1, 1, replicas=(1, 2, 3), isr=(1,)),
        PartitionDescription(2, -1, replicas=(1, 2, 3), isr=(1, 2, 3)),
        PartitionDescription(3, 9, replicas=(9, 1), isr=(9, 1)),  # a leader that is not in the cluster
    ]
    assert described(describe(Admin(partitions), flag)) == expected


@pytest.mark.parametrize("error", [UnsupportedVersionError("old"), ClusterAuthorizationFailedError("no rights")])
def test_clusters_that_do_not_list_reassignments(describe: Any, error: KafkaError) -> None:
    admin = Admin([PartitionDescription(0, 1, replicas=(1, 2), isr=(1,))], error)
    result = describe(admin, "--under-replicated-partitions")
    assert described(result) == [0]
    assert result.stderr == ""


def test_describes_topics_without_a_controller(describe: Any) -> None:
    """Only the controller knows the reassignments. The rest is most useful while there is none."""
    admin = Admin([PartitionDescription(0, 1, replicas=(1, 2), isr=(1,))], KafkaTimeoutError("no controller"))
    result = describe(admin, "--under-replicated-partitions")
    assert described(result) == [0]
    assert "no controller" in result.stderr
