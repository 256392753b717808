"""The live tail: records as they arrive.

A browser shows a few hundred records per second at most. If more arrive, the oldest of each interval are left out and
counted, so that the tail stays at the end of the topic.
"""

import asyncio
from collections.abc import AsyncIterator

from headrace.client.consumer.batch_reader import EARLIEST, LATEST, BatchReader
from headrace.common.clock import Clock
from headrace.console.decoders.registry import DecoderRegistry
from headrace.console.records.browse import matches, visible_rows
from headrace.console.records.rows import Row
from headrace.console.search.conditions import FilterError
from headrace.console.search.query import RecordQuery
from headrace.console.search.row_filter import RowFilter

__all__ = ["tail"]

_WAIT_MS = 500
_FETCH_BYTES = 512 * 1024
_MAX_ROWS = 200
_FAR_BEHIND = 50_000
"""A partition that is this many records behind continues at its end."""


async def tail(
    reader: BatchReader, query: RecordQuery, decoders: DecoderRegistry, clock: Clock, with_control: bool = False
) -> AsyncIterator[tuple[list[Row], int]]:
    """Yields new records and the number of those that were left out, about twice a second. Never ends."""
    row_filter = RowFilter(
        query.parsed_conditions(), decoders.get(query.key_decoder), decoders.get(query.value_decoder)
    )
    partitions = await reader.partitions()
    if query.partitions is not None:
        missing = sorted(set(query.partitions) - set(partitions))
        if missing:
            raise FilterError(f"partition: topic {query.topic!r} has no partition {missing[0]}")
        partitions = sorted(query.partitions)
    positions = await reader.offsets(dict.fromkeys(partitions, LATEST), query.read_committed)
    while True:
        rows: list[Row] = []
        skipped = 0
        fetched_at = clock.monotonic()
        for fetched in await reader.fetch(
            positions, max_bytes=_FETCH_BYTES, max_wait_ms=_WAIT_MS, read_committed=query.read_committed
        ):
            partition = fetched.partition
            if fetched.out_of_range:
                positions |= await reader.offsets({partition: EARLIEST})
                continue
            visible = await visible_rows(reader, fetched, query, with_control, _FETCH_BYTES)
            rows += [row for row in visible if matches(query, row_filter, row)]
            end = fetched.last_stable_offset if query.read_committed else fetched.high_watermark
            positions[partition] = fetched.next_offset
            if end - fetched.next_offset > _FAR_BEHIND:
                skipped += end - fetched.next_offset
                positions[partition] = end
        if len(rows) > _MAX_ROWS:
            skipped += len(rows) - _MAX_ROWS
            rows = sorted(rows, key=lambda row: row.timestamp)[-_MAX_ROWS:]
        yield rows, skipped
        rest = _WAIT_MS / 1000 - (clock.monotonic() - fetched_at)
        if rows and rest > 0:
            await asyncio.sleep(rest)
