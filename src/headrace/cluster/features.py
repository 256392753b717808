"""The finalized features of the cluster (KIP-584), in the node /feature: levels that all brokers have agreed to use.

A cluster on ZooKeeper may have brokers of Apache Kafka 3.9, which support no features. It has none, unless the node
names some: brokers of Apache Kafka then refuse to start. Without ZooKeeper all brokers are Headrace's, and each feature
has its highest level.

Owned by the broker's loop.
"""

import asyncio
import logging
from collections.abc import Mapping

from headrace.cluster import znodes
from headrace.cluster.store import CoordinationStore, NoNode, WatchEvent
from headrace.common.errors import HeadraceError

_logger = logging.getLogger(__name__)

TRANSACTION_VERSION = "transaction.version"
SUPPORTED_FEATURES: Mapping[str, int] = {TRANSACTION_VERSION: 2}
"""The highest level of each feature. The lowest is 0."""
_RETRY_SECONDS = 1.0


class FinalizedFeatures:
    """The levels of the features. `start` reads them; then they follow the store."""

    def __init__(self, store: CoordinationStore, *, may_have_kafka_brokers: bool):
        self.levels: Mapping[str, int] = {} if may_have_kafka_brokers else SUPPORTED_FEATURES
        self.epoch = 0
        """Increases with each change."""
        self._store = store
        self._is_watching = may_have_kafka_brokers
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Raises HeadraceError if the cluster uses a feature that this broker does not support."""
        if not self._is_watching:
            return
        await self._read()
        unsupported = {name: level for name, level in self.levels.items() if level > SUPPORTED_FEATURES.get(name, 0)}
        if unsupported:
            raise HeadraceError(
                f"The cluster has the finalized features {dict(self.levels)} ({znodes.FEATURE}); this broker supports "
                f"only {dict(SUPPORTED_FEATURES)}"
            )
        self._task = asyncio.create_task(self._run(), name="finalized-features")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def restart_watch(self) -> None:
        """Reads the features and sets the watch again. Call it after the session with the store was lost."""
        self._changed.set()

    def _on_change(self, _: WatchEvent) -> None:
        self._changed.set()

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._read()
            except HeadraceError as error:
                _logger.warning("Cannot read the finalized features, will retry: %s", error)
                self._changed.set()
                await asyncio.sleep(_RETRY_SECONDS)

    async def _read(self) -> None:
        try:
            data, stat = await self._store.get(znodes.FEATURE, self._on_change)
        except NoNode:
            if await self._store.exists(znodes.FEATURE, self._on_change) is not None:
                self._changed.set()  # created meanwhile
            return
        levels = znodes.decode_feature(data)
        if levels != self.levels:
            _logger.info("The finalized features of the cluster are %s", levels or "none")
        self.levels, self.epoch = levels, stat.version
