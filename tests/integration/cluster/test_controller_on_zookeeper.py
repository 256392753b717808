"""Controllers on a real ZooKeeper: failed brokers, a controller whose session expires, a controller that is killed.

The brokers are fakes that record the controller's commands.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.cluster.fake_cluster import FakeBroker, FakeChannel, FakeCluster
from tests.support.cluster.zookeeper import ZooKeeper
from tests.support.cluster.zookeeper_store import expire_session, new_chroot, open_store, slow_test

from headrace.cluster import znodes
from headrace.cluster.bulk_reads import read_many
from headrace.cluster.controller import Controller
from headrace.cluster.controller_requests import IsrChange
from headrace.cluster.registration import prepare_cluster, register_broker
from headrace.cluster.store import NoNode
from headrace.cluster.topics import TopicAdmin, TopicSpec
from headrace.cluster.znodes import Leadership
from headrace.cluster.zookeeper.store import ZooKeeperStore
from headrace.common.errors import KafkaError
from headrace.common.types import TopicPartition

PARTITIONS = 200


class ZooKeeperCluster(FakeCluster):
    """Fake brokers with controllers, each with its own session on ZooKeeper."""

    def __init__(self, connect: str, admin: ZooKeeperStore):
        super().__init__()
        self.connect = connect
        self.zookeeper = admin
        self.admin = TopicAdmin(admin, self.random)
        self.sessions: dict[int, ZooKeeperStore] = {}

    @classmethod
    @asynccontextmanager
    async def open(cls, zookeeper: ZooKeeper) -> "AsyncIterator[ZooKeeperCluster]":
        connect = zookeeper.connect + new_chroot()
        cluster = cls(connect, await open_store(connect))
        await prepare_cluster(cluster.zookeeper, cluster.random)
        for broker_id in (1, 2, 3):
            await cluster.start_broker(broker_id)
        try:
            yield cluster
        finally:
            for broker_id in list(cluster.brokers):
                await cluster.kill_broker(broker_id)
            await cluster.zookeeper.close()

    async def start_broker(self, broker_id: int) -> None:
        session = self.sessions[broker_id] = await open_store(self.connect)
        broker = FakeBroker(broker_id, self.store)
        broker.info = await register_broker(session, broker.info, self.clock)
        self.brokers[broker_id] = broker
        broker.controller = Controller(session, broker_id, FakeChannel(self), self.clock)
        await broker.controller.start()

    async def kill_broker(self, broker_id: int) -> None:
        broker = self.brokers.pop(broker_id)
        assert broker.controller is not None
        assert broker.controller._task is not None
        broker.controller._task.cancel()
        await self.sessions.pop(broker_id).close()

    async def leaderships(self) -> dict[TopicPartition, Leadership]:
        tps = [TopicPartition("orders", partition) for partition in range(PARTITIONS)]

        async def read(tp: TopicPartition) -> Leadership:
            data, stat = await self.zookeeper.get(znodes.state_path(tp))
            return znodes.decode_leadership(tp, data, stat.version)

        return await read_many(tps, read)

    async def join_isr(self) -> None:
        """Lets every leader add all brokers to the ISR, as if they had caught up: the fakes do not fetch. Repeats
        it, as leaders do, until the controller knows all registrations."""
        while not await self._try_to_join_isr():
            await asyncio.sleep(0.01)

    async def _try_to_join_isr(self) -> bool:
        changes: dict[int, dict[TopicPartition, IsrChange]] = {}
        epochs = {broker_id: broker.info.epoch for broker_id, broker in self.brokers.items()}
        for tp, state in (await self.leaderships()).items():
            changes.setdefault(state.leader, {})[tp] = IsrChange(
                state.leader_epoch, state.partition_epoch, tuple(epochs), tuple(epochs.values())
            )
        try:
            results = [
                result
                for leader, of_leader in changes.items()
                for result in (await self.controller.alter_isr(leader, epochs[leader], of_leader)).values()
            ]
        except KafkaError:
            return False
        return all(isinstance(result, Leadership) for result in results)

    async def wait_for_leaders(self) -> None:
        """Waits until every partition has a leader among the brokers, and all brokers know it."""
        while not await self._has_leaders():
            await asyncio.sleep(0.01)

    async def _has_leaders(self) -> bool:
        try:
            states = await self.leaderships()
        except NoNode:
            return False  # not created yet
        for tp, state in states.items():
            if state.leader not in self.brokers or not set(state.isr) <= self.brokers.keys():
                return False
            for broker in self.brokers.values():
                shown = broker.image.partition(tp.topic, tp.partition)
                if shown is None or (shown.leader, shown.leader_epoch) != (state.leader, state.leader_epoch):
                    return False
                if broker.hosted.get(tp) != (state.leader, state.leader_epoch):
                    return False
        return True


@slow_test
async def test_failovers(zookeeper: ZooKeeper) -> None:
    async with ZooKeeperCluster.open(zookeeper) as cluster:
        await cluster.admin.create_topic(TopicSpec("orders", PARTITIONS, 3))
        await cluster.wait_for_leaders()
        first = cluster.controller

        # A follower of the controller fails and comes back.
        other = next(broker_id for broker_id in cluster.brokers if broker_id != first.broker_id)
        await cluster.kill_broker(other)
        await cluster.wait_for_leaders()
        assert cluster.controller is first
        await cluster.start_broker(other)
        await cluster.wait_for_leaders()

        # The controller's session expires, but its process lives: it registers again, and some broker is elected.
        epoch = first.epoch
        session = cluster.sessions[first.broker_id]
        await asyncio.to_thread(expire_session, session)
        while first.epoch == epoch or session.session_id == 0:
            await asyncio.sleep(0.01)
        broker = cluster.brokers[first.broker_id]
        broker.info = await register_broker(session, broker.info, cluster.clock, wait_seconds=60.0)
        await cluster.wait_for_leaders()
        assert cluster.controller.epoch > epoch
        await cluster.join_isr()

        # The controller is killed.
        epoch = cluster.controller.epoch
        await cluster.kill_broker(cluster.controller.broker_id)
        await cluster.wait_for_leaders()
        assert cluster.controller.epoch == epoch + 1
        assert len(cluster.brokers) == 2
