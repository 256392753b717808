"""A principal on a cluster: its client configs, its admin client, and what it may see."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from headrace.aio.admin import Admin
from headrace.client.config.admin import ADMIN_KEYS
from headrace.client.config.consumer import CONSUMER_KEYS
from headrace.client.config.producer import PRODUCER_KEYS
from headrace.client.config.table import ClientTable
from headrace.client.errors import KafkaTimeoutError
from headrace.common.clock import Clock
from headrace.common.errors import HeadraceError
from headrace.console.settings import ClusterSettings
from headrace.console.visibility import EVERYTHING, Visibility, read_visibility
from headrace.diagnosis.snapshot import Finding

__all__ = ["Identity", "client_config"]

_logger = logging.getLogger(__name__)

_TABLES: Mapping[str, ClientTable[Any]] = {"admin": ADMIN_KEYS, "consumer": CONSUMER_KEYS, "producer": PRODUCER_KEYS}
_CLIENT_ID = "headrace-console"
_TIMEOUT_MS = 20_000
_VISIBILITY_SECONDS = 15.0


def client_config(kind: str, settings: ClusterSettings, credentials: Mapping[str, str]) -> dict[str, object]:
    """Returns the configs of an `admin`, a `consumer` or a `producer`. With credentials, none of the console's own
    `sasl.*` configs is used."""
    own = {
        key: value
        for key, value in settings.config.items()
        if key in _TABLES[kind].keys and not (credentials and key.startswith("sasl."))
    }
    return {"client.id": _CLIENT_ID, **own, **credentials, "bootstrap.servers": settings.servers}


class Identity:
    """One principal on one cluster. Create it on the loop; close it in the end."""

    def __init__(
        self,
        settings: ClusterSettings,
        clock: Clock,
        user: str | None = None,
        credentials: Mapping[str, str] = {},
        *,
        is_reachable: Callable[[], bool] = lambda: True,
    ):
        self.cluster = settings.name
        self.user = user
        """The principal, such as `User:alice`, or None for the console itself."""
        self.problems: tuple[list[Finding], int, dict[str, int]] | None = None
        """What needs attention, when that was found, and the generation of the snapshot."""
        self._settings = settings
        self._credentials = dict(credentials)
        self._clock = clock
        self._visibility: Visibility | None = None
        self._visible_until = 0.0
        self._is_reachable = is_reachable
        self._reading = asyncio.Lock()
        self.admin = Admin({"default.api.timeout.ms": _TIMEOUT_MS, **self.client_config("admin")})

    def client_config(self, kind: str) -> dict[str, object]:
        """Returns the configs of a client that acts as this principal."""
        return client_config(kind, self._settings, self._credentials)

    async def visibility(self) -> Visibility:
        """Returns what this principal may see. On a cluster without login that is what the console may see.

        While the cluster does not answer, it is what the cluster said last, so that pages keep the last known state.
        """
        if not self._settings.needs_login:
            return EVERYTHING
        if self._visibility is not None and not self._is_reachable():
            return self._visibility
        async with self._reading:
            if self._visibility is None or self._clock.monotonic() >= self._visible_until:
                try:
                    self._visibility = await read_visibility(self.admin)
                except KafkaTimeoutError:
                    if self._visibility is None:
                        raise
                    return self._visibility
                self._visible_until = self._clock.monotonic() + _VISIBILITY_SECONDS
            return self._visibility

    def forget_visibility(self) -> None:
        """Reads what is visible again, as after a change."""
        self._visible_until = 0.0

    async def close(self) -> None:
        try:
            await self.admin.close()
        except HeadraceError as error:
            _logger.debug("Closing the connections of %s: %s", self.user, error)
        self._credentials.clear()
