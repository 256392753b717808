"""What admin requests wait for: that the controller has done what the store was told to.

The change is in the store already; a request whose time is up is told so, and the change happens all the same.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from headrace.cluster import znodes
from headrace.cluster.metadata_image import MetadataImage
from headrace.cluster.store import NoNode, WatchEvent

if TYPE_CHECKING:
    from headrace.broker.server import Broker

T = TypeVar("T")


async def wait_for_all(
    broker: "Broker", things: Iterable[T], is_done: Callable[[MetadataImage, T], bool], deadline: float
) -> list[T]:
    """Waits until all is done, or the clock shows `deadline`; returns what is not done by then."""
    left = list(things)

    def all_done(image: MetadataImage) -> bool:
        left[:] = [thing for thing in left if not is_done(image, thing)]
        return not left

    await broker.image.wait_for(all_done, max(deadline - broker.clock.monotonic(), 0.0))
    return left


async def wait_until_unmarked(broker: "Broker", topic: str, deadline: float) -> bool:
    """Waits until nothing is left of a topic that is being deleted, so that one of its name can be made; False if the
    clock shows `deadline` before. The mark goes last, in one step with the topic's nodes in the store."""
    path = znodes.delete_topic_path(topic)
    changed = asyncio.Event()

    def note_change(_: WatchEvent) -> None:
        changed.set()

    try:
        async with asyncio.timeout(max(deadline - broker.clock.monotonic(), 0.0)):
            while True:
                changed.clear()
                await broker.store.get(path, note_change)
                await changed.wait()
    except NoNode:
        return True
    except TimeoutError:
        return False
