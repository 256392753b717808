"""Heartbeats in the background, and the watch over how often the user polls.

Owner: the loop; `began` and `ended` are called by whichever thread polls.

While the member may beat (`Member.may_beat`), the coordinator hears from it every `heartbeat.interval.ms`. A program
that does not come back to poll for `max.poll.interval.ms` would keep its partitions from others for ever; so the member
then leaves the group (a static one just falls silent), and joins again when the program polls.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from headrace.client.group.coordinator_client import CoordinatorClient
from headrace.client.group.member import Member, MemberState
from headrace.common.clock import Clock
from headrace.common.errors import (
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    IllegalGenerationError,
    KafkaError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from headrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

__all__ = ["HeartbeatTask", "PollTimer"]

_logger = logging.getLogger(__name__)


class PollTimer:
    """When the user last polled. Within a poll time does not count."""

    def __init__(self, clock: Clock, limit_ms: float):
        self._clock = clock
        self._limit = limit_ms / 1000
        self._ended = clock.monotonic()
        self._is_polling = False

    def began(self) -> None:
        self._ended = self._clock.monotonic()
        self._is_polling = True

    def restart(self) -> None:
        """A subscription begins: the time before it does not count."""
        self._ended = self._clock.monotonic()

    def ended(self) -> None:
        self._ended = self._clock.monotonic()
        self._is_polling = False

    @property
    def seconds_left(self) -> float:
        if self._is_polling:
            return self._limit
        return self._ended + self._limit - self._clock.monotonic()


class HeartbeatTask:
    def __init__(
        self,
        coordinator: CoordinatorClient,
        member: Member,
        polls: PollTimer,
        *,
        interval_ms: float,
        session_timeout_ms: float,
        rejoin: Callable[[str], None],
        failed: Callable[[KafkaError], None],
        expired: Callable[[], Awaitable[None]],
    ):
        self._coordinator = coordinator
        self._member = member
        self._polls = polls
        self._interval = interval_ms / 1000
        self._timeout_ms = session_timeout_ms
        self._rejoin = rejoin
        self._failed = failed
        self._expired = expired
        self.sent = 0

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(min(self._interval, max(self._polls.seconds_left, 0.001)))
            if not self._member.may_beat:
                continue
            if self._polls.seconds_left <= 0:
                _logger.warning(
                    "%s: leaves its group: no poll for max.poll.interval.ms. Take longer intervals, or fewer records "
                    "with a poll (max.poll.records)",
                    self._member,
                )
                await self._expired()
            else:
                await self._beat()

    async def _beat(self) -> None:
        """A reply may come when the member is another already; it is then about one that is gone."""
        member, asked = self._member, self._member.identity
        request = HeartbeatRequest(
            group_id=asked.group_id,
            generation_id=asked.generation_id,
            member_id=asked.member_id,
            group_instance_id=asked.group_instance_id,
        )
        self.sent += 1
        try:
            reply: HeartbeatResponse = await self._coordinator.send(request, timeout_ms=self._timeout_ms)
        except KafkaError as error:
            if not error.retriable and member.identity == asked:
                self._failed(error)
            _logger.debug("%s: no reply to a heartbeat: %s", member, error)
            return
        error_of = self._coordinator.error(reply.error_code)
        if error_of is None or member.identity != asked:
            return
        if isinstance(error_of, RebalanceInProgressError):
            if member.state is MemberState.STABLE:
                self._rejoin("the group rebalances")
        elif isinstance(error_of, UnknownMemberIdError | IllegalGenerationError):
            _logger.warning("%s: the group has gone on without it: %s", member, error_of)
            member.expelled(keep_id=isinstance(error_of, IllegalGenerationError))
            self._rejoin("a heartbeat told that the group has gone on without this member")
        elif isinstance(error_of, FencedInstanceIdError):  # another has taken its place and its partitions
            member.expelled(keep_id=True)
            self._failed(error_of)
        elif isinstance(error_of, GroupAuthorizationFailedError):
            self._failed(error_of)
        elif not error_of.retriable:
            _logger.warning("%s: a heartbeat was refused: %s", member, error_of)
