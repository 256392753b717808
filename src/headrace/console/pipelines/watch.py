"""Follows the topic of the pipelines' statuses on one cluster. Owner: the console's loop.

Reads what is new after each collection, with the console's own identity. Without the topic, there are no pipelines.
"""

import logging

from headrace.client.consumer.batch_reader import EARLIEST, BatchReader
from headrace.common.errors import HeadraceError
from headrace.console.identity import Identity
from headrace.console.pipelines.statuses import STATUS_TOPIC, Statuses
from headrace.console.snapshot import Snapshot
from headrace.records import decode_rows

__all__ = ["PipelineWatch"]

_logger = logging.getLogger(__name__)
_FETCH_BYTES = 4 * 1024 * 1024
_MAX_FETCHES = 200
"""Per collection. A topic that is longer is read over several collections."""


class PipelineWatch:
    """The statuses of one cluster's pipelines."""

    def __init__(self, own: Identity):
        self._own = own
        self._reader: BatchReader | None = None
        self._position: int | None = None
        self._topic_id: str | None = None
        self.statuses = Statuses()
        self.error: str | None = None
        """Why the statuses could not be read."""

    async def collect(self, snapshot: Snapshot) -> None:
        """Reads new records."""
        topic = snapshot.topics.get(STATUS_TOPIC)
        if topic is None or topic.topic_id != self._topic_id:
            self._position = None
            self.statuses.clear()
            self._topic_id = None if topic is None else topic.topic_id
        if topic is not None:
            try:
                await self._read()
                self.error = None
            except HeadraceError as error:
                if self.error is None:
                    _logger.warning("The status of pipelines cannot be read from topic %s: %s", STATUS_TOPIC, error)
                self.error = str(error)
        snapshot.generation["pipelines"] = self.statuses.generation

    async def _read(self) -> None:
        if self._reader is None:
            config = {**self._own.client_config("consumer"), "default.api.timeout.ms": 10_000}
            self._reader = BatchReader(config, STATUS_TOPIC)
        if self._position is None:
            self._position = (await self._reader.offsets({0: EARLIEST}))[0]
        for _ in range(_MAX_FETCHES):
            (fetched,) = await self._reader.fetch({0: self._position}, max_bytes=_FETCH_BYTES)
            if fetched.out_of_range:
                self._position = None
                return
            for batch in fetched.batches:
                if not batch.is_control:
                    for record in decode_rows(batch.records(), self._position):
                        self.statuses.apply(record.key, record.value)
            self._position = fetched.next_offset
            if not fetched.batches or self._position >= fetched.high_watermark:
                return

    async def close(self) -> None:
        if self._reader is not None:
            await self._reader.close()
