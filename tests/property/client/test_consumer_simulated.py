"""A consumer in virtual time whose brokers move leaders, close connections, evict sessions, respond late and with
errors, and a user that seeks and pauses: every record is returned once and in order, starting at the user's last
position.
"""

import asyncio
import random

import pytest
from tests.support.client.fake_logs import FakeLogs
from tests.support.net.virtual_loop import run

from headrace.common.types import TopicPartition

BROKERS = 3
PARTITIONS = 4
STEPS = 120
PASSING_ERRORS = (3, 5, 6, 9, 56, 74, 75, 78)


class Simulation:
    def __init__(self, seed: int):
        self.seed = seed
        self.chance = random.Random(seed)
        self.logs = FakeLogs(BROKERS)
        self.logs.create("t", PARTITIONS, leaders=[1 + index % BROKERS for index in range(PARTITIONS)])
        self.next = {TopicPartition("t", index): 0 for index in range(PARTITIONS)}
        """The expected next offset."""
        self.seen = 0

    def write(self) -> None:
        place = ("t", self.chance.randrange(PARTITIONS))
        end = self.logs.logs[place].end
        count = self.chance.choice((1, 2, 10, 100))
        self.logs.append(place, *(b"%d %d" % (place[1], end + number) for number in range(count)))

    def disturb(self) -> None:
        """Does something at random in the cluster."""
        chance, logs = self.chance, self.logs
        place = ("t", chance.randrange(PARTITIONS))
        broker = logs.broker(1 + chance.randrange(BROKERS))
        kind = chance.choice(("move", "move untold", "hang up", "refuse", "forget sessions", "error", "slow", "write"))
        if kind == "move":
            logs.move(place, 1 + chance.randrange(BROKERS))
        elif kind == "move untold":
            logs.move(place, 1 + chance.randrange(BROKERS), publish=False)
            asyncio.get_running_loop().call_later(chance.random() * 2, logs.publish_metadata, "t")
        elif kind == "hang up":
            broker.hang_up()
        elif kind == "refuse":
            broker.accepts = not broker.accepts
            broker.hang_up()
        elif kind == "forget sessions":
            logs.sessions.clear()
        elif kind == "error":
            logs.logs[place].error = 0 if logs.logs[place].error else chance.choice(PASSING_ERRORS)
        elif kind == "slow":
            broker.latency = chance.choice((0.001, 0.05, 1.0))
        else:
            self.write()

    def heal(self) -> None:
        for broker in self.logs.cluster.brokers:
            broker.accepts, broker.latency = True, 0.001
        for log in self.logs.logs.values():
            log.error = 0
        self.logs.publish_metadata("t")

    async def use(self, consumer) -> None:
        """Does something at random as the user."""
        chance = self.chance
        tp = TopicPartition("t", chance.randrange(PARTITIONS))
        kind = chance.choice(("poll", "poll", "poll", "iterate", "arrow", "seek", "pause", "resume", "sleep"))
        if kind == "poll":
            for each, records in (
                await consumer.poll(chance.choice((0, 10, 1000)), chance.choice((1, 7, 500)))
            ).items():
                self.check(each, [(record.offset, record.value) for record in records], consumer)
        elif kind == "iterate":
            for _ in range(chance.choice((1, 5))):
                try:
                    async with asyncio.timeout(0.5):
                        record = await consumer.getone()
                except TimeoutError:
                    break
                self.check(TopicPartition("t", record.partition), [(record.offset, record.value)], consumer)
        elif kind == "arrow":
            rows = (await consumer.poll_arrow(chance.choice((0, 1000)), chance.choice((1, 50, None)))).to_pylist()
            for each in self.next:
                mine = [(row["offset"], row["value"]) for row in rows if row["partition"] == each.partition]
                self.check(each, mine, consumer)
        elif kind == "seek":
            self.next[tp] = chance.randrange(self.logs.logs["t", tp.partition].end + 1)
            consumer.seek(tp, self.next[tp])
        elif kind == "pause":
            consumer.pause(tp)
        elif kind == "resume":
            consumer.resume(*consumer.paused())
        else:
            await asyncio.sleep(chance.random() * 3)

    def check(self, tp: TopicPartition, found: list[tuple[int, bytes]], consumer) -> None:
        assert not found or tp not in consumer.paused(), f"{tp} is paused"
        for offset, value in found:
            assert offset == self.next[tp], f"{tp}: got offset {offset}, expected {self.next[tp]}"
            assert value == b"%d %d" % (tp.partition, offset)
            self.next[tp] += 1
            self.seen += 1

    async def run(self) -> None:
        settings = {
            "auto_offset_reset": "earliest",
            "max_partition_fetch_bytes": self.chance.choice((100, 1000, 100_000)),
            "queued_max_messages_kbytes": self.chance.choice((1, 100)),
            "enable_incremental_fetch_sessions": self.chance.random() < 0.8,
            "request_timeout_ms": 3000,
        }
        async with self.logs.consumer(**settings) as consumer:
            consumer.assign(self.next)
            for tp in self.next:
                consumer.seek(tp, 0)
            for _ in range(STEPS):
                self.write()
                if self.chance.random() < 0.4:
                    self.disturb()
                await self.use(consumer)
            self.heal()
            consumer.resume(*consumer.paused())
            ends = {tp: self.logs.logs["t", tp.partition].end for tp in self.next}
            loop = asyncio.get_running_loop()
            deadline = loop.time() + 120
            while self.next != ends:
                assert loop.time() < deadline, f"stuck at {self.next}, the ends are {ends}"
                for tp, records in (await consumer.poll(1000)).items():
                    self.check(tp, [(record.offset, record.value) for record in records], consumer)
            assert {tp: await consumer.position(tp) for tp in self.next} == ends


@pytest.mark.parametrize("seed", range(25))
def test_every_record_is_returned_once_in_order(seed):
    simulation = Simulation(seed)
    try:
        run(simulation.run())
    except BaseException:
        print(f"seed {seed}, after {simulation.seen} records")
        raise
    assert simulation.seen > 100
