"""Admin requests wait here until the controller has applied a change of topics.

The change is already in the coordination store. A request that times out gets an error, but the change still happens.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

from headrace.broker.replica_manager import ReplicaManager
from headrace.cluster import znodes
from headrace.cluster.metadata_image import MetadataImage
from headrace.cluster.store import CoordinationStore, NoNode, WatchEvent
from headrace.common.clock import Clock
from headrace.common.errors import KafkaError, KafkaStorageError, RequestTimedOutError

T = TypeVar("T")


async def wait_for_image(
    image: MetadataImage,
    clock: Clock,
    topics: Iterable[T],
    is_done: Callable[[MetadataImage, T], bool],
    deadline: float,
) -> list[T]:
    """Waits until the image has all changes, or until `deadline`. Returns the unfinished topics."""
    unfinished = list(topics)

    def all_done(image: MetadataImage) -> bool:
        unfinished[:] = [topic for topic in unfinished if not is_done(image, topic)]
        return not unfinished

    await image.wait_for(all_done, max(deadline - clock.monotonic(), 0.0))
    return unfinished


async def wait_for_leaders(
    image: MetadataImage,
    replicas: ReplicaManager,
    clock: Clock,
    topics: Iterable[tuple[str, int, int]],
    deadline: float,
) -> dict[str, KafkaError]:
    """Waits until the new partitions of topics have leaders. Returns the failed topics.

    `topics`: name, partition count, and first new partition of each.

    A topic fails at once if the log of a partition cannot be created, or at `deadline`. In both cases it exists, and
    gets its leaders later.
    """
    failed: dict[str, KafkaError] = {}

    def is_done(image: MetadataImage, topic: tuple[str, int, int]) -> bool:
        name, _, first = topic
        error = replicas.creation_error(name, first)
        if error is not None:
            failed[name] = KafkaStorageError(
                f"Topic '{name}' has partitions without a leader; the broker keeps trying to create their logs: {error}"
            )
        return error is not None or image.topic_is_ready(*topic)

    for name, _, _ in await wait_for_image(image, clock, topics, is_done, deadline):
        failed[name] = RequestTimedOutError(
            f"Timed out: not all partitions of topic '{name}' have leaders yet. They are still being created."
        )
    return failed


async def wait_for_deletion(store: CoordinationStore, clock: Clock, topic: str, deadline: float) -> bool:
    """Waits until a deleted topic's name can be used again. Returns False if `deadline` passes before.

    The controller removes the deletion mark last, in one step with the topic's own nodes.
    """
    path = znodes.delete_topic_path(topic)
    changed = asyncio.Event()

    def note_change(_: WatchEvent) -> None:
        changed.set()

    try:
        async with asyncio.timeout(max(deadline - clock.monotonic(), 0.0)):
            while True:
                changed.clear()
                await store.get(path, note_change)
                await changed.wait()
    except NoNode:
        return True
    except TimeoutError:
        return False
