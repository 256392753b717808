"""Reads of many nodes at once.

A failover reads a node for each topic and partition. Over a network they must not wait for each other, so several
readers work at the same time. A store in the same process answers at once: then one reader does everything, and gives
way to the event loop now and then.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")

READERS = 500
"""The number of reads at the same time. ZooKeeper reads them with one request."""
ITEMS_PER_TURN = 200
"""After this many items without a wait, other tasks of the event loop get their turn."""


async def read_many(keys: Iterable[K], read: Callable[[K], Awaitable[V]]) -> dict[K, V]:
    """Returns the result of `read` for each key, in the order of the keys. If a read fails, cancels the others and
    raises its error."""
    results: dict[K, V] = dict.fromkeys(keys)  # type: ignore[assignment]
    remaining = iter(list(results))
    first = next(remaining, None)
    if first is None:
        return results
    waited = asyncio.get_running_loop().create_future()
    waiting = asyncio.get_running_loop().call_soon(waited.set_result, None)
    results[first] = await read(first)
    if not waited.done():
        waiting.cancel()
        await _read(remaining, read, results)
        return results
    readers = [asyncio.ensure_future(_read(remaining, read, results)) for _ in range(min(READERS, len(results) - 1))]
    try:
        await asyncio.gather(*readers)
    finally:
        for reader in readers:
            reader.cancel()
    return results


async def _read(keys: Iterator[K], read: Callable[[K], Awaitable[V]], results: dict[K, V]) -> None:
    for number, key in enumerate(keys, 1):
        results[key] = await read(key)
        if number % ITEMS_PER_TURN == 0:
            await asyncio.sleep(0)


async def give_way(count: int) -> None:
    """Lets other tasks run, if `count` is a multiple of ITEMS_PER_TURN. For loops over many partitions."""
    if count % ITEMS_PER_TURN == 0:
        await asyncio.sleep(0)
