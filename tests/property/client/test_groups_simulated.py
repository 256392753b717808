"""Groups in an unreliable network: requests and responses are lost and delayed, members crash, hang, join and leave,
and the coordinator moves and loses what it had not written. No two members of the group ever own the same partition.
When the network recovers, the group becomes stable, and every record has been read.

A failed run prints its seed.
"""

import random
from typing import Any

import pytest
from tests.support.coordinator.group_sim import Group, User, partitions
from tests.support.net.virtual_loop import run

from headrace.common.types import TopicPartition

STRATEGIES: tuple[Any, ...] = (
    "range",
    "roundrobin",
    "sticky",
    "cooperative-sticky",
    ("range", "cooperative-sticky"),
    ("cooperative-sticky",),
)
RECORDS = 40
EVENTS = 16


async def simulate(seed: int) -> None:
    group = Group(seed)
    chance = random.Random(seed)
    strategy = chance.choice(STRATEGIES)
    counts = {"t": chance.randint(1, 8), "u": chance.randint(1, 4)}
    group.metadata.set_topics(**counts)
    group.records = RECORDS

    async def add() -> User:
        static = {"group_instance_id": f"static-{chance.randrange(10**6)}"} if chance.random() < 0.3 else {}
        topics = ("t", "u") if chance.random() < 0.7 else ("t",)
        return await group.add(*topics, partition_assignment_strategy=strategy, **static)

    try:
        keeper = await group.add("t", "u", partition_assignment_strategy=strategy)
        for _ in range(chance.randint(1, 3)):
            await add()
        for _ in range(EVENTS):
            await disturb(group, chance, add, keeper)
            await group.run(chance.choice((0.1, 1.0, 5.0, 12.0)))
        for user in group.users.values():
            user.network.loss, user.network.is_cut, user.is_hanging = 0.0, False, False
        group.coordinator.is_moved = False
        counts = {name: len(info.partitions) for name, info in group.metadata.view.topics.items()}
        tps = [tp for name, count in counts.items() for tp in partitions(name, count)]
        await group.until(lambda: group.is_settled(*tps), 300)
        await group.until(lambda: all(is_read(group, tp) for tp in tps), 300)
        read = {entry for user in (*group.users.values(), *group.gone) for entry in user.read}
        assert read == {(tp, offset) for tp in tps for offset in range(RECORDS)}
        assert not [error for user in group.users.values() for error in user.errors]
    finally:
        await group.close()


def is_read(group: Group, tp: TopicPartition) -> bool:
    return group.coordinator.bench.committed(tp.topic, tp.partition) == RECORDS


async def disturb(group: Group, chance: random.Random, add: Any, keeper: User) -> None:
    user = chance.choice(list(group.users.values()))
    what = chance.choice(
        ("add", "remove", "crash", "cut", "mend", "hang", "wake", "lose", "lose", "calm", "move", "reload", "grow")
    )
    if what == "add" and len(group.users) < 6:
        await add()
    elif what in ("remove", "crash") and user is not keeper:
        await group.remove(user, crash=what == "crash")
    elif what in ("cut", "mend"):
        user.network.is_cut = what == "cut"
    elif what in ("hang", "wake"):
        user.is_hanging = what == "hang"
    elif what in ("lose", "calm"):
        for each in group.users.values():
            each.network.loss = chance.choice((0.05, 0.2, 0.5)) if what == "lose" else 0.0
    elif what == "move":
        group.coordinator.is_moved = not group.coordinator.is_moved
    elif what == "reload":
        group.coordinator.bench.reload()
    elif what == "grow":
        view = group.metadata.view
        group.metadata.set_topics(**{name: len(info.partitions) + 1 for name, info in view.topics.items()})


@pytest.mark.parametrize("seed", range(12))
def test_group_in_unreliable_network(seed: int) -> None:
    run(simulate(seed))
