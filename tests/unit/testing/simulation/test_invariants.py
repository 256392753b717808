"""The invariants detect broken guarantees, which these tests cause on purpose."""

from collections.abc import Awaitable, Callable
from types import SimpleNamespace

import pytest

from headrace.admin import NewTopic
from headrace.broker.partition import Partition
from headrace.cluster import znodes
from headrace.cluster.znodes import Leadership
from headrace.common.types import TopicPartition
from headrace.testing.simulation.cluster import SimulatedCluster, run_simulation
from headrace.testing.simulation.history import History, InvariantViolation
from headrace.testing.simulation.invariants import Invariants

TP = TopicPartition("t", 0)
PATH = znodes.state_path(TP)
PROPERTIES: dict[str, object] = {"offsets.topic.replication.factor": 1, "offsets.topic.num.partitions": 1}


def run(check: Callable[[SimulatedCluster, Invariants], Awaitable[None]]) -> None:
    """Runs a check on a broker with a topic and two records."""

    async def scenario(cluster: SimulatedCluster) -> None:
        history = History()
        history.note_sent(TP, b"value")
        invariants = Invariants(cluster, history)
        await cluster.start()
        node = cluster.client_node("client")

        async def work() -> None:
            async with cluster.admin(node) as admin:
                await admin.create_topics([NewTopic("t", 1, 1)])
            async with cluster.producer(node) as producer:
                for _ in range(2):
                    await producer.send_and_wait("t", b"value")

        await node.run(work())
        invariants.check()
        assert invariants.unsettled() is None
        await check(cluster, invariants)

    run_simulation(1, scenario, brokers=1, properties=PROPERTIES)


def partition_of(cluster: SimulatedCluster) -> Partition:
    return cluster.brokers[0].broker.replicas.find("t", 0)


async def write(
    cluster: SimulatedCluster, change: Callable[[Leadership], Leadership], version: int | None = None
) -> None:
    data, stat = await cluster.store.get(PATH)
    changed = change(znodes.decode_leadership(TP, data, stat.version))
    await cluster.store.set(PATH, znodes.encode_leadership(changed), stat.version if version is None else version)


def test_truncation_below_the_high_watermark() -> None:
    async def check(cluster: SimulatedCluster, invariants: Invariants) -> None:
        log = partition_of(cluster).log
        assert log is not None
        log.truncate_to(1)
        with pytest.raises(InvariantViolation, match="t-0 on broker-0 was truncated to 1, below its high watermark 2"):
            invariants.check()
        invariants.allow_truncation = True
        with pytest.raises(InvariantViolation, match="the committed batch at offset 1 was"):
            invariants.check()

    run(check)


def test_a_leader_that_the_store_does_not_know() -> None:
    async def check(cluster: SimulatedCluster, invariants: Invariants) -> None:
        await write(cluster, lambda state: Leadership(0, 5, (0,), state.controller_epoch))
        invariants.store.violation = None
        invariants.store._leaders[str(partition_of(cluster).topic_id), PATH, 5] = 7
        partition = partition_of(cluster)
        partition.leader_epoch, partition.partition_epoch = 5, 1
        with pytest.raises(InvariantViolation, match="the store has broker 7 as leader of this epoch"):
            invariants.check()

    run(check)


def test_a_state_that_the_store_never_had() -> None:
    async def check(cluster: SimulatedCluster, invariants: Invariants) -> None:
        partition_of(cluster).leader_epoch = 5
        with pytest.raises(InvariantViolation, match="the store never had it"):
            invariants.check()

    run(check)


def test_an_isr_that_the_store_never_had() -> None:
    async def check(cluster: SimulatedCluster, invariants: Invariants) -> None:
        partition_of(cluster).isr = [0, 1]
        with pytest.raises(InvariantViolation, match=r"has ISR \[0, 1\], the store never had it"):
            invariants.check()

    run(check)


def test_a_broker_that_goes_back_to_an_older_state() -> None:
    async def check(cluster: SimulatedCluster, invariants: Invariants) -> None:
        partition_of(cluster).partition_epoch = 7
        invariants.check()
        partition_of(cluster).partition_epoch = 0
        with pytest.raises(InvariantViolation, match=r"went back from .* \(0, 7\) to \(0, 0\)"):
            invariants.check()

    run(check)


def test_an_acknowledged_record_that_the_leader_does_not_have() -> None:
    async def check(cluster: SimulatedCluster, invariants: Invariants) -> None:
        invariants._history.acknowledged[TP] = {1: b"value", 0: b"another value"}
        with pytest.raises(InvariantViolation, match="b'another value' was acknowledged at offset 0"):
            invariants.check()

    run(check)


def test_different_bytes_with_one_epoch_and_offset() -> None:
    async def check(cluster: SimulatedCluster, invariants: Invariants) -> None:
        partition = partition_of(cluster)
        assert partition.log is not None
        committed = invariants._committed_of(partition)
        committed.by_epoch[0, 2] = (3, 12345)  # as if another broker had it
        node = cluster.client_node("client")

        async def send() -> None:
            async with cluster.producer(node) as producer:
                await producer.send_and_wait("t", b"value")

        await node.run(send())
        with pytest.raises(InvariantViolation, match="offset 2 of epoch 0 differs between brokers"):
            invariants.check()

    run(check)


def test_a_high_watermark_above_the_log_end_of_an_in_sync_replica() -> None:
    async def check(cluster: SimulatedCluster, invariants: Invariants) -> None:
        log = partition_of(cluster).log
        assert log is not None
        log.high_watermark = 3
        with pytest.raises(InvariantViolation, match="high watermark 3 > log end 2"):
            invariants.check()
        log.high_watermark = 2
        other = SimpleNamespace(
            id=0,
            name="other",
            broker=SimpleNamespace(
                replicas=SimpleNamespace(
                    get=lambda *_: SimpleNamespace(
                        log=SimpleNamespace(log_end_offset=1), topic_id=partition_of(cluster).topic_id
                    )
                )
            ),
        )
        invariants._running = lambda: [other]  # type: ignore[list-item,method-assign,return-value]
        with pytest.raises(InvariantViolation, match="but the log of broker 0 ends at 1, and it is in the ISR"):
            invariants._check_in_sync_replicas(partition_of(cluster), log, "t-0")

    run(check)


def test_a_committed_offset_that_the_coordinator_lost() -> None:
    async def check(cluster: SimulatedCluster, invariants: Invariants) -> None:
        node = cluster.client_node("client")

        async def commit() -> None:
            async with cluster.consumer(node, group_id="g") as consumer:
                await consumer.commit({TP: 2})

        await node.run(commit())
        invariants._history.note_committed_offset("g", TP, 2)
        invariants.check()
        invariants._history.note_committed_offset("g", TP, 3)
        with pytest.raises(InvariantViolation, match=r"committed offset of group g in .* but 3 was committed"):
            invariants.check()

    run(check)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: Leadership(0, 1, (0, 9), state.controller_epoch), "no subset of the assignment"),
        (lambda state: Leadership(0, 1, (), state.controller_epoch), "not in sync"),
        (lambda state: Leadership(0, -1, (0,), state.controller_epoch), "epoch went back"),
        (lambda state: Leadership(-1, 0, (0,), state.controller_epoch), "without an epoch of its own"),
        (lambda state: Leadership(-1, 1, (0,), state.controller_epoch - 1), "A controller was replaced"),
        (lambda state: Leadership(-1, 1, (0,), state.controller_epoch), "neither controller nor leader"),
    ],
)
def test_bad_changes_of_the_store(change: Callable[[Leadership], Leadership], message: str) -> None:
    async def check(cluster: SimulatedCluster, invariants: Invariants) -> None:
        await write(cluster, change)
        with pytest.raises(InvariantViolation, match=message):
            invariants.check()

    run(check)


def test_changes_without_compare_and_set() -> None:
    async def check(cluster: SimulatedCluster, invariants: Invariants) -> None:
        await write(cluster, lambda state: state, version=-1)
        with pytest.raises(InvariantViolation, match="without compare-and-set"):
            invariants.check()

    run(check)


def test_a_partition_without_leader_is_not_settled() -> None:
    async def check(cluster: SimulatedCluster, invariants: Invariants) -> None:
        await write(cluster, lambda state: state.new_leader(-1))
        assert "t-0 has no leader" in str(invariants.unsettled())
        cluster.brokers[0].kill()
        assert invariants.unsettled() == "a broker is not running"

    run(check)
