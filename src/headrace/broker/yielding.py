"""Lets the event loop serve other requests while a handler processes thousands of items."""

import asyncio

ITEMS_PER_TURN = 500


async def yield_to_others(items_done: int, items_per_turn: int = ITEMS_PER_TURN) -> None:
    """Call it after each item, with the number of items done so far: it yields once in a while."""
    if items_done % items_per_turn == 0:
        await asyncio.sleep(0)
