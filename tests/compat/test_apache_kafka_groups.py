"""`__consumer_offsets` of both brokers after the same requests: Kafka's tool prints the same for both; Headrace loads
Kafka's. Kafka writes an offset with its topic id (version 4), Headrace without (version 3)."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.support.apache_kafka.dump_log import DUMP_CLASS
from tests.support.apache_kafka.jvm import run_java
from tests.support.broker.process import Broker, Headrace, Kafka, eventually
from tests.support.coordinator.groups import GroupBench, subscription
from tests.support.net.wire_client import WireClient

from headrace.coordinator.group.classic_group import GroupState
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.delete_groups import DeleteGroupsRequest
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from headrace.records import RecordBatch

pytestmark = pytest.mark.timeout(180)

SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
}
TOPIC = "read"
_LINE = re.compile(r"key: (\{.*?\})(?: payload: (.*))?$")


class Client:
    def __init__(self, broker: Broker):
        host, port = broker.bootstrap.split(":")
        self._wire = WireClient((host, int(port)))

    def close(self) -> None:
        self._wire.close()

    def call(self, request: Any, version: int | None = None) -> Any:
        return self._wire.call(request, version)

    def prepare(self) -> None:
        one = CreatableTopic(name=TOPIC, num_partitions=2, replication_factor=1)
        self.call(CreateTopicsRequest(topics=[one], timeout_ms=30_000))
        find = FindCoordinatorRequest(coordinator_keys=["any"])
        eventually(lambda: self.call(find).coordinators[0].error_code == 0, "there is a coordinator")
        eventually(lambda: self.commit("warm", 1) == 0, "it is loaded")

    def stable(self, group: str, instance: str | None = None) -> tuple[str, int]:
        joined = self.call(
            JoinGroupRequest(
                group_id=group,
                group_instance_id=instance,
                session_timeout_ms=30_000,
                rebalance_timeout_ms=40_000,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription(TOPIC))],
            ),
            9 if instance else 3,
        )
        assert joined.error_code == 0
        synced = self.call(
            SyncGroupRequest(
                group_id=group,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                group_instance_id=instance,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all of it")],
            )
        )
        assert synced.error_code == 0
        return joined.member_id, joined.generation_id

    def commit(self, group: str, offset: int, member: tuple[str, int] = ("", -1), version: int = 9) -> int:
        one = OffsetCommitRequestPartition(
            partition_index=1, committed_offset=offset, committed_leader_epoch=4, committed_metadata="a note"
        )
        request = OffsetCommitRequest(
            group_id=group,
            member_id=member[0],
            generation_id_or_member_epoch=member[1],
            retention_time_ms=86_400_000 if version < 5 else -1,
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[one])],
        )
        return int(self.call(request, version).topics[0].partitions[0].error_code)


def play(broker: Broker) -> Path:
    """Sends the same requests to both; returns the log of the partition after the broker's shutdown."""
    with broker:
        client = Client(broker)
        client.prepare()
        client.stable("static", "i")
        member = client.stable("dynamic")
        assert client.commit("dynamic", 7, member) == 0
        assert client.commit("simple", 8) == 0
        assert client.commit("old", 9, version=4) == 0
        gone = client.stable("gone")
        left = LeaveGroupRequest(group_id="gone", members=[MemberIdentity(member_id=gone[0])])
        assert client.call(left).members[0].error_code == 0
        assert client.commit("deleted", 3) == 0
        assert client.call(DeleteGroupsRequest(groups_names=["deleted"])).results[0].error_code == 0
        client.close()
    return broker.data_dir / "__consumer_offsets-0" / f"{0:020d}.log"


@pytest.fixture(scope="module")
def logs(apache_kafka: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("groups")
    return {
        "headrace": play(Headrace(root / "headrace", SETTINGS)),
        "kafka": play(Kafka(root / "kafka", SETTINGS)),
    }


def as_kafka_reads(log: Path) -> list[tuple[Any, Any]]:
    """Returns keys and values without the parts that differ between runs."""
    said = run_java(DUMP_CLASS, ["--offsets-decoder", "--files", log]).stdout
    found: list[tuple[Any, Any]] = []
    for line in said.splitlines():
        match = _LINE.search(line)
        if match is not None:
            value = match[2]
            found.append((json.loads(match[1]), steady(json.loads(value)) if value and value[0] == "{" else None))
    return found


def steady(value: Any) -> Any:
    if value["data"].pop("topicId", None) is not None:
        value["version"] = "3"
    text = re.sub(r'"(wire|i)-[0-9a-f-]{32,36}"', r'"\1-id"', json.dumps(value))
    return json.loads(re.sub(r'"(\w*[tT]imestamp)": \d+', r'"\1": 0', text))


def last_of_each(records: list[tuple[Any, Any]]) -> dict[str, Any]:
    """Compares the state after compaction; intermediate records that only one broker writes do not matter."""
    found: dict[str, Any] = {}
    for key, value in records:
        name = json.dumps(key)
        found.pop(name, None)
        if value is not None:
            found[name] = value
    return found


def test_kafkas_tool_dumps_same_content(logs: dict[str, Path]) -> None:
    ours, theirs = last_of_each(as_kafka_reads(logs["headrace"])), last_of_each(as_kafka_reads(logs["kafka"]))
    assert len(theirs) >= 7
    assert ours == theirs


@pytest.mark.parametrize("who", ["headrace", "kafka"])
def test_coordinator_loads_state_of_both(logs: dict[str, Path], who: str) -> None:
    bench = GroupBench()
    bench.runtime.unload(0)
    data = logs[who].read_bytes()
    while data:
        size = 12 + int.from_bytes(data[8:12], "big")
        bench.log.batches.append(RecordBatch(bytearray(data[:size])))
        data = data[size:]
    bench.load()
    groups = bench.shard.groups
    assert {name: group.state for name, group in groups.items()} == {
        "warm": GroupState.EMPTY,
        "static": GroupState.STABLE,
        "dynamic": GroupState.STABLE,
        "simple": GroupState.EMPTY,
        "old": GroupState.EMPTY,
        "gone": GroupState.EMPTY,
    }
    (member,) = groups["static"].members.values()
    assert (member.group_instance_id, member.client_id, member.client_host) == ("i", "wire", "/127.0.0.1")
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (30_000, 40_000)
    assert (member.assignment, groups["static"].protocol) == (b"all of it", "range")
    assert groups["dynamic"].is_subscribed(TOPIC)
    assert (groups["gone"].generation_id, groups["gone"].protocol_type) == (2, "consumer")
    for name, offset in (("dynamic", 7), ("simple", 8), ("old", 9)):
        found = bench.shard.offsets_of(name).get(TOPIC, 1)
        assert found is not None
        assert (found.offset, found.metadata) == (offset, "a note")
        assert found.leader_epoch == (-1 if name == "old" else 4)
        assert (found.expire_timestamp_ms > 0) is (name == "old")
