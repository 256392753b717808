"""The failover of the controller of a large cluster, without disks and network.

    HEADRACE_LARGE_CLUSTER=100,200000 pytest -s tests/unit/cluster/test_controller_large.py

measures 100 brokers with 200,000 partitions of three replicas.
"""

import os
import time
from collections import Counter

import pytest
from tests.support.cluster import fake_cluster
from tests.support.cluster.fake_cluster import FakeBroker, FakeCluster

from headrace.cluster.commands import Command, CommandResult

BROKERS, PARTITIONS = map(int, os.environ.get("HEADRACE_LARGE_CLUSTER", "10,2000").split(","))
PER_TOPIC = 1000
SECONDS = 3600.0


def test_failover(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next controller elects leaders for all partitions of the dead one, and sends everything to all brokers."""
    monkeypatch.setattr(fake_cluster, "DEADLINE_SECONDS", SECONDS)
    sent: Counter[str] = Counter()

    def handle(self: FakeBroker, command: Command) -> CommandResult:
        # Only counts: 100 metadata images in one process would need gigabytes.
        sent[type(command).__name__] += 1
        return CommandResult()

    monkeypatch.setattr(FakeBroker, "handle", handle)

    async def body() -> None:
        cluster = await FakeCluster.make(range(1, BROKERS + 1))
        for number in range(PARTITIONS // PER_TOPIC):
            assignment = {
                partition: [(number + partition + place) % BROKERS + 1 for place in range(3)]
                for partition in range(PER_TOPIC)
            }
            await cluster.create(f"t{number}", assignment)
        (dead,) = [one.id for one in cluster.brokers.values() if one.controller and one.controller.is_active]
        sent.clear()
        started = time.process_time()
        await cluster.kill(dead)
        print(
            f"{BROKERS} brokers, {PARTITIONS:,} partitions: failover of the controller took "
            f"{time.process_time() - started:.1f} CPU-s, commands {dict(sent)}"
        )
        assert cluster.controller.is_active
        states = await cluster.states()
        assert len(states) == PARTITIONS
        assert all(state.leader not in (-1, dead) and dead not in state.isr for state in states.values())
        assert sent["LeaderAndIsr"] >= BROKERS - 1
        assert sent["UpdateMetadata"] >= BROKERS - 1
        await cluster.close()

    fake_cluster.async_test(body)()
