"""Heartbeats in the background, and the limit of `max.poll.interval.ms`.

Owner: the loop. The thread that polls calls `began` and `ended`.

The member sends a heartbeat every `heartbeat.interval.ms` while it may (`Member.may_heartbeat`). A program that does
not poll for `max.poll.interval.ms` would keep its partitions from other members forever. So the member then leaves the
group (a static member only stops its heartbeats), and rejoins when the program polls again.
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
    """Measures the time between polls. Time within a poll does not count."""

    def __init__(self, clock: Clock, limit_ms: float):
        self._clock = clock
        self._limit = limit_ms / 1000
        self._ended = clock.monotonic()
        self._is_polling = False

    def began(self) -> None:
        self._ended = self._clock.monotonic()
        self._is_polling = True

    def restart(self) -> None:
        """Ignores the time before a new subscription."""
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
    """Sends heartbeats and watches the poll interval."""

    def __init__(
        self,
        coordinator: CoordinatorClient,
        member: Member,
        polls: PollTimer,
        *,
        interval_ms: float,
        session_timeout_ms: float,
        rejoin: Callable[[str], None],
        on_failure: Callable[[KafkaError], None],
        on_poll_timeout: Callable[[], Awaitable[None]],
    ):
        self._coordinator = coordinator
        self._member = member
        self._polls = polls
        self._interval = interval_ms / 1000
        self._timeout_ms = session_timeout_ms
        self._rejoin = rejoin
        self._on_failure = on_failure
        self._on_poll_timeout = on_poll_timeout
        self.sent = 0

    async def run(self) -> None:
        """Runs until it is cancelled."""
        while True:
            await asyncio.sleep(min(self._interval, max(self._polls.seconds_left, 0.001)))
            if not self._member.may_heartbeat:
                continue
            if self._polls.seconds_left <= 0:
                _logger.warning(
                    "%s: leaving the group because the consumer poll timeout has expired: the time between polls "
                    "was longer than max.poll.interval.ms. Increase max.poll.interval.ms or reduce max.poll.records",
                    self._member,
                )
                await self._on_poll_timeout()
            else:
                await self._send_heartbeat()

    async def _send_heartbeat(self) -> None:
        """Sends one heartbeat. Ignores the response if the member id or generation has changed meanwhile."""
        member, sent_as = self._member, self._member.identity
        request = HeartbeatRequest(
            group_id=sent_as.group_id,
            generation_id=sent_as.generation_id,
            member_id=sent_as.member_id,
            group_instance_id=sent_as.group_instance_id,
        )
        self.sent += 1
        try:
            response: HeartbeatResponse = await self._coordinator.send(request, timeout_ms=self._timeout_ms)
        except KafkaError as error:
            if not error.retriable and member.identity == sent_as:
                self._on_failure(error)
            _logger.debug("%s: heartbeat failed: %s", member, error)
            return
        response_error = self._coordinator.error(response.error_code)
        if response_error is None or member.identity != sent_as:
            return
        if isinstance(response_error, RebalanceInProgressError):
            if member.state is MemberState.STABLE:
                self._rejoin("the group is rebalancing")
        elif isinstance(response_error, UnknownMemberIdError | IllegalGenerationError):
            _logger.warning("%s: no longer in the group, rejoining: %s", member, response_error)
            member.reset_generation(keep_id=isinstance(response_error, IllegalGenerationError))
            self._rejoin("a heartbeat found that this member is not in the group")
        elif isinstance(
            response_error, FencedInstanceIdError
        ):  # another consumer with this instance id owns the partitions
            member.reset_generation(keep_id=True)
            self._on_failure(response_error)
        elif isinstance(response_error, GroupAuthorizationFailedError):
            self._on_failure(response_error)
        elif not response_error.retriable:
            _logger.warning("%s: heartbeat failed, retrying: %s", member, response_error)
