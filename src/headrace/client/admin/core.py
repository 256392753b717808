"""The admin client on the loop that it is made on; `headrace.aio.Admin`, and what the blocking `Admin` stands on."""

from collections.abc import Mapping
from types import TracebackType
from typing import TypeVar, Unpack

from headrace.client.admin.cluster import ClusterAdmin
from headrace.client.admin.configs import ConfigsAdmin
from headrace.client.admin.groups import GroupsAdmin
from headrace.client.admin.topics import TopicsAdmin
from headrace.client.admin.transactions import TransactionsAdmin
from headrace.client.config.admin import ADMIN_KEYS
from headrace.client.config.keywords import AdminKeywords
from headrace.client.core import ClientCore

__all__ = ["AdminCore"]

Self = TypeVar("Self", bound="AdminCore")


class AdminCore(TopicsAdmin, ConfigsAdmin, ClusterAdmin, GroupsAdmin, TransactionsAdmin):
    """Administers a cluster: every call is a coroutine.

        async with headrace.aio.Admin(bootstrap_servers="localhost:9092") as admin:
            await admin.create_topics([NewTopic("events", 3)])

    Settings are keyword arguments, or a mapping of Kafka's dotted names. To be made within a running loop.

    Calls about several items return `Results`, with one result for each; where some went wrong, the first error is
    raised, and has the results with it, unless `raise_errors=False`. `timeout_ms` is for the whole call with all its
    retries; without, `default.api.timeout.ms`.
    """

    def __init__(self, config: Mapping[str, object] | None = None, /, **keywords: Unpack[AdminKeywords]):
        self.core = ClientCore(ADMIN_KEYS.load(config, **keywords), allow_auto_create=False)

    async def start(self, timeout_ms: float | None = None) -> None:
        """Connects. Not needed; raises NoBrokersAvailable early."""
        await self.core.start(timeout_ms)

    async def close(self) -> None:
        """Closes the connections; may be called twice."""
        await self.core.close()

    async def __aenter__(self: Self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
