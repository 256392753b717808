"""The admin client on an event loop: `headrace.aio.Admin`, and the core of the blocking `Admin`."""

from collections.abc import Mapping
from types import TracebackType
from typing import TypeVar, Unpack

from headrace.client.admin.acls import AclsAdmin
from headrace.client.admin.client_quotas import ClientQuotasAdmin
from headrace.client.admin.cluster import ClusterAdmin
from headrace.client.admin.configs import ConfigsAdmin
from headrace.client.admin.groups import GroupsAdmin
from headrace.client.admin.hanging import HangingTransactionsAdmin
from headrace.client.admin.log_dirs import LogDirsAdmin
from headrace.client.admin.reassignments import ReassignmentsAdmin
from headrace.client.admin.scram import ScramAdmin
from headrace.client.admin.tokens import TokensAdmin
from headrace.client.admin.topics import TopicsAdmin
from headrace.client.config.admin import ADMIN_KEYS
from headrace.client.config.keywords import AdminKeywords
from headrace.client.config.types import AdminConfig
from headrace.client.core import ClientCore
from headrace.common.clock import Clock
from headrace.common.ids import Random
from headrace.net.dialer import Dialer

__all__ = ["AdminCore"]

Self = TypeVar("Self", bound="AdminCore")


class AdminCore(
    TopicsAdmin,
    ConfigsAdmin,
    ClusterAdmin,
    LogDirsAdmin,
    ReassignmentsAdmin,
    GroupsAdmin,
    HangingTransactionsAdmin,
    ClientQuotasAdmin,
    ScramAdmin,
    AclsAdmin,
    TokensAdmin,
):
    """Administers a cluster. Every call is a coroutine.

        async with headrace.aio.Admin(bootstrap_servers="localhost:9092") as admin:
            await admin.create_topics([NewTopic("events", 3)])

    The configuration is passed as keyword arguments, as a mapping with Kafka's names, or both. Create it on a running
    event loop.

    Calls about several items return `Results`, with one result per item. If some items failed, the call raises the
    first error, which has all results in its attribute `results`. With `raise_errors=False` it returns the results
    instead. `timeout_ms` limits the whole call including retries. The default is `default.api.timeout.ms`.
    """

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        /,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        dialer: Dialer | None = None,
        **keywords: Unpack[AdminKeywords],
    ):
        """`clock`, `random` and `dialer` replace time, randomness and sockets in tests."""
        self.core = ClientCore(
            ADMIN_KEYS.load(config, **keywords), clock=clock, random=random, dialer=dialer, allow_auto_create=False
        )

    @property
    def config(self) -> AdminConfig:
        """The parsed configuration, for example `config.client_id` or `config["client_id"]`."""
        return self.core.config

    async def start(self, timeout_ms: float | None = None) -> None:
        """Connects to the cluster. Optional: the client connects on first use. Raises NoBrokersAvailable."""
        await self.core.start(timeout_ms)

    async def close(self) -> None:
        """Closes the connections. May be called twice."""
        await self.core.close()

    async def __aenter__(self: Self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
