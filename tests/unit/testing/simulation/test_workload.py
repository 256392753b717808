"""Every client of the workload works, on one broker without faults."""

import asyncio

from headrace.common.ids import make_random
from headrace.testing.simulation.cluster import SimulatedCluster, run_simulation
from headrace.testing.simulation.history import History
from headrace.testing.simulation.workload import SHORT_LIVED, Workload

PROPERTIES: dict[str, object] = {
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
}


def test_clients() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        history = History()
        workload = Workload(cluster, make_random(1), history, replication_factor=1)
        await cluster.start()
        await workload.create_topics()
        workload.start(
            workload.producer,
            workload.reader,
            workload.group_consumer,
            workload.transactional_producer,
            workload.committed_reader,
            workload.copier,
            workload.topic_changer,
        )
        await asyncio.sleep(10)
        workload.check()
        await workload.stop()
        await workload.check_end()
        assert history.acknowledged_count > 20
        assert history.read_count > 20
        assert history.committed_offsets
        assert history.committed_in_transactions
        assert history.read_committed
        assert {transaction.committed for transaction in history.transactions} == {True, False}
        assert not history.failures
        assert any(SHORT_LIVED in line for line in cluster.trace)

    run_simulation(1, scenario, brokers=1, properties=PROPERTIES)
