"""The broker's membership in the cluster: its registration, and its registration again in every new session.

The registration is an ephemeral node, so it ends with the session. Its zxid is the broker epoch. When the store has
opened a new session, the broker registers again and gets a new epoch. Then the listeners are told: they set their
watches again and read what they may have missed.

Between the two, the broker is not a member. It goes on serving, but can change nothing: its requests to the controller
have an old broker epoch.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TypeAlias

from headrace.cluster.commands import BrokerInfo
from headrace.cluster.registration import register_broker
from headrace.cluster.store import CoordinationStore, SessionExpired, SessionState
from headrace.common.clock import Clock
from headrace.common.errors import HeadraceError

_logger = logging.getLogger(__name__)

MembershipListener: TypeAlias = Callable[[BrokerInfo], None]
"""Called with the broker and its new epoch after each registration but the first."""
_RETRY_SECONDS = 1.0


class BrokerMembership:
    """Keeps one broker registered: `await join()`, later `await leave()`."""

    def __init__(
        self, store: CoordinationStore, describe: Callable[[], BrokerInfo], clock: Clock, session_timeout_ms: int
    ):
        """`describe` returns the broker with its current addresses."""
        self.epoch = -1
        """The broker epoch, or that of the previous session while the broker registers again."""
        self.is_registered = False
        self._store = store
        self._describe = describe
        self._clock = clock
        # After a crash, the old registration exists until its session expires. ZooKeeper checks that now and then.
        self._wait_seconds = session_timeout_ms / 1000 * 1.5 + 5.0
        self._listeners: list[MembershipListener] = []
        self._task: asyncio.Task[None] | None = None
        self._has_left = False
        self._was_lost = False

    def add_listener(self, listener: MembershipListener) -> None:
        self._listeners.append(listener)

    async def join(self) -> BrokerInfo:
        """Registers the broker. Waits for the session of its previous life to expire.

        Raises DuplicateBrokerRegistrationError if another broker has the id.
        """
        self._store.add_session_listener(self._on_session_state)
        broker = await self._register()
        if self._was_lost and self._task is None:  # the session expired meanwhile
            self._start_to_register()
        return broker

    async def leave(self) -> None:
        """Stops registering. The registration ends with the session."""
        self._has_left = True
        self.is_registered = False
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _register(self) -> BrokerInfo:
        broker = await register_broker(self._store, self._describe(), self._clock, wait_seconds=self._wait_seconds)
        self.epoch = broker.epoch
        self.is_registered = True
        return broker

    def _on_session_state(self, state: SessionState) -> None:
        if self._has_left:
            return
        if state is SessionState.LOST:
            self.is_registered = False
            self._was_lost = True
        elif self.epoch >= 0:
            self._start_to_register()

    def _start_to_register(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._was_lost = False
        self._task = asyncio.create_task(self._register_again(), name="broker-registration")

    async def _register_again(self) -> None:
        while True:
            try:
                broker = await self._register()
                break
            except SessionExpired:
                return  # the next session starts the next try
            except HeadraceError as error:
                _logger.error(
                    "Broker %d cannot register again, so the cluster considers it dead. Trying again: %s",
                    self._describe().id,
                    error,
                )
                await asyncio.sleep(_RETRY_SECONDS)
        for listener in tuple(self._listeners):
            try:
                listener(broker)
            except Exception:
                _logger.exception("A listener of the membership of broker %d failed", broker.id)
