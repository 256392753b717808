"""Commits and fetches the offsets of a group.

Owner: the loop. Serves group members and, with generation -1, consumers that use `assign` instead of `subscribe`.

- Commits are sent in the order of the calls, with one request in flight at a time.
- Commits that arrive meanwhile are merged into the next request. A later offset of a partition replaces an earlier one.
- After a retriable error, a synchronous commit is retried together with all later commits, so that it does not
  overwrite them.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from headrace.client.consumer.subscription_state import SubscriptionState
from headrace.client.errors import CommitFailedError, IllegalStateError, KafkaTimeoutError, error_for
from headrace.client.group.coordinator_client import CoordinatorClient
from headrace.client.group.member import Member
from headrace.client.group.offset_requests import commit_request, commit_results, fetch_request, fetch_results
from headrace.client.types import OffsetAndMetadata
from headrace.common.backoff import Backoff
from headrace.common.errors import (
    FencedInstanceIdError,
    IllegalGenerationError,
    KafkaError,
    RebalanceInProgressError,
    RequestTimedOutError,
    UnknownMemberIdError,
)
from headrace.common.types import TopicPartition

__all__ = ["CommitRequestManager", "Offsets", "OnCommit"]

_logger = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
OnCommit = Callable[[Offsets, KafkaError | None], None]

_MEMBERSHIP_LOST = (UnknownMemberIdError, IllegalGenerationError)


def _last_error(last: KafkaError | None) -> str:
    return "" if last is None else f"; the last error: {last}"


class _Commit:
    """A pending commit. A synchronous commit is retried until its caller times out."""

    def __init__(self, offsets: Offsets, is_synchronous: bool, future: "asyncio.Future[None]"):
        self.offsets = offsets
        self.uncommitted = dict(offsets)
        self.is_synchronous = is_synchronous
        self.future = future
        self.last_error: KafkaError | None = None


class CommitRequestManager:
    """Sends OffsetCommit and OffsetFetch requests for one consumer."""

    def __init__(
        self,
        coordinator: CoordinatorClient,
        member: Member,
        subscription: SubscriptionState,
        backoff: Backoff,
        *,
        default_timeout_ms: float,
        auto_commit_ms: float | None = None,
        require_stable: bool = False,
        rejoin: Callable[[str], None] | None = None,
        on_commit: OnCommit | None = None,
    ):
        self._coordinator = coordinator
        self._member = member
        self._subscription = subscription
        self._backoff = backoff
        self._default_timeout_ms = default_timeout_ms
        self._auto_commit_ms = auto_commit_ms
        """The interval of automatic commits, or None if they are disabled."""
        self._require_stable = require_stable
        """True to wait for offsets that an open transaction is about to commit."""
        self._rejoin = rejoin or (lambda reason: None)  # noqa: ARG005
        self.on_commit = on_commit
        """Called after every commit, including automatic commits."""
        self._queued: list[_Commit] = []
        self._in_flight: list[_Commit] = []
        self._task: asyncio.Task[None] | None = None
        self._auto_task: asyncio.Task[None] | None = None
        self.last_committed: dict[TopicPartition, OffsetAndMetadata] = {}
        """The offset of each partition that this consumer committed last."""

    # ---- commit and committed

    async def commit(self, offsets: Offsets, *, timeout_ms: float | None = None) -> None:
        """Returns when the offsets are committed.

        Raises CommitFailedError if the group has removed this member, RebalanceInProgressError if the consumer must
        poll before it commits again, KafkaTimeoutError, or the error of the coordinator.
        """
        timeout_ms = self._default_timeout_ms if timeout_ms is None else timeout_ms
        commit = self._add(offsets, is_synchronous=True)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await commit.future
        except TimeoutError as error:
            if isinstance(error, KafkaError):  # from the commit itself
                raise
            raise KafkaTimeoutError(
                f"{self._member}: Timeout of {timeout_ms:.0f} ms expired before successfully committing offsets"
                f"{_last_error(commit.last_error)}"
            ) from commit.last_error

    def commit_async(self, offsets: Offsets, callback: OnCommit | None = None) -> "asyncio.Future[None]":
        """Starts a commit without retries. Then calls `callback(offsets, error)`. Callbacks run in the order of the
        commits."""
        future = self._add(offsets, is_synchronous=False).future
        if callback is not None:

            def call(done: "asyncio.Future[None]") -> None:
                if done.cancelled():  # the loop is stopping
                    return
                error = done.exception()
                assert error is None or isinstance(error, KafkaError)
                callback(offsets, error)

            future.add_done_callback(call)
        else:
            # Reading the exception avoids asyncio's warning "exception was never retrieved".
            future.add_done_callback(lambda done: done.exception())
        return future

    async def committed(
        self, tps: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Returns the committed offsets of the group. A partition without a committed offset has the value None."""
        partitions = frozenset(tps)
        if not partitions:
            return {}
        timeout_ms = self._default_timeout_ms if timeout_ms is None else timeout_ms
        failures = 0
        last: KafkaError | None = None
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while True:
                    try:
                        return await self._fetch(partitions)
                    except KafkaError as error:
                        if not error.retriable:
                            raise
                        last = error
                    await asyncio.sleep(self._backoff.wait_seconds(failures))
                    failures += 1
        except TimeoutError as error:
            if isinstance(error, KafkaError):  # from the request itself
                raise
            raise KafkaTimeoutError(
                f"Group {self._member.group_id}: Timeout of {timeout_ms:.0f} ms expired before the last committed "
                f"offset could be determined{_last_error(last)}"
            ) from last

    # ---- automatic commits

    def start(self) -> None:
        """Starts automatic commits, if they are enabled."""
        if self._auto_commit_ms is not None and self._auto_task is None:
            self._auto_task = asyncio.create_task(self._auto_commit_loop(self._auto_commit_ms), name="auto-commit")

    async def stop(self) -> None:
        """Stops automatic commits and waits for pending commits."""
        if self._auto_task is not None:
            self._auto_task.cancel()
            await asyncio.wait([self._auto_task])
            self._auto_task = None
        await self.wait_for_pending()

    async def abandon(self) -> None:
        """Drops all pending commits. Their callers and callbacks get an error, because their outcome is unknown."""
        tasks = [task for task in (self._task, self._auto_task) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._auto_task = None
        pending = [commit for commit in (*self._in_flight, *self._queued) if not commit.future.done()]
        self._in_flight = []
        self._queued = []
        for commit in pending:
            message = f"{self._member}: the consumer was closed before the commit completed; its outcome is unknown"
            self._finish(commit, IllegalStateError(message))

    async def wait_for_pending(self) -> None:
        """Waits for all pending commits."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def commit_processed(self, timeout_ms: float) -> None:
        """Commits the offsets of processed records before a rebalance, if automatic commits are enabled. A failure is
        only logged: the next owners read some records again."""
        if self._auto_commit_ms is None or not (offsets := self._uncommitted_offsets()):
            return
        try:
            await self.commit(offsets, timeout_ms=timeout_ms)
        except KafkaError as error:
            _logger.warning(
                "%s: automatic commit before the rebalance failed; some records may be read again: %s",
                self._member,
                error,
            )

    def _uncommitted_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        offsets = self._subscription.auto_commit_offsets()
        return {tp: offset for tp, offset in offsets.items() if self.last_committed.get(tp) != offset}

    async def _auto_commit_loop(self, interval_ms: float) -> None:
        failures = 0
        wait = interval_ms / 1000
        while True:
            await asyncio.sleep(wait)
            wait = interval_ms / 1000
            if self._subscription.is_subscribed and not self._member.may_commit:
                continue
            if offsets := self._uncommitted_offsets():
                try:
                    await self._add(offsets, is_synchronous=False).future
                except KafkaError as error:
                    _logger.warning("%s: automatic commit failed, will retry: %s", self._member, error)
                    if error.retriable:
                        wait = min(wait, self._backoff.wait_seconds(failures))
                        failures += 1
                else:
                    failures = 0

    # ---- sending

    def _add(self, offsets: Offsets, is_synchronous: bool) -> _Commit:
        commit = _Commit(dict(offsets), is_synchronous, asyncio.get_running_loop().create_future())
        self._queued.append(commit)
        if self._task is None:
            self._task = asyncio.create_task(self._send_queued(), name="commits")
        return commit

    async def _send_queued(self) -> None:
        try:
            failures = 0
            while self._queued:
                self._in_flight, self._queued = self._queued, []
                to_retry = await self._send_merged(self._in_flight)
                self._in_flight = []
                self._queued[:0] = to_retry
                failures = failures + 1 if to_retry else 0
                if to_retry:
                    await asyncio.sleep(self._backoff.wait_seconds(failures - 1))
        finally:
            self._task = None

    async def _send_merged(self, commits: list[_Commit]) -> list[_Commit]:
        """Sends commits in one request. Returns the commits to retry: all that failed with a retriable error if a
        synchronous commit is among them. So a retry does not overwrite a later commit. For the same reason, it has only
        the partitions that failed."""
        merged = {tp: offset for commit in commits for tp, offset in commit.uncommitted.items()}
        errors: dict[TopicPartition, KafkaError | None]
        try:
            errors = await self._send(merged)
        except KafkaError as error:
            errors = dict.fromkeys(merged, error)
        except Exception as error:
            _logger.exception("%s: commit failed; its offsets are not committed", self._member)
            encoding_error = KafkaError(f"{self._member}: the commit request could not be encoded: {error}")
            errors = dict.fromkeys(merged, encoding_error)
        self.last_committed.update({tp: offset for tp, offset in merged.items() if errors[tp] is None})
        has_synchronous = any(commit.is_synchronous and not commit.future.done() for commit in commits)
        to_retry = []
        for commit in commits:
            commit.uncommitted = {tp: offset for tp, offset in commit.uncommitted.items() if errors[tp] is not None}
            failure = next((errors[tp] for tp in commit.uncommitted), None)
            commit.last_error = failure
            if failure is not None and failure.retriable and has_synchronous and not commit.future.done():
                to_retry.append(commit)
            else:
                self._finish(commit, failure)
        return to_retry

    def _finish(self, commit: _Commit, error: KafkaError | None) -> None:
        if not commit.future.done():
            if error is None:
                commit.future.set_result(None)
            else:
                commit.future.set_exception(error)
        if self.on_commit is not None:
            self.on_commit(commit.offsets, error)

    async def _send(self, offsets: Offsets) -> dict[TopicPartition, KafkaError | None]:
        """Sends an OffsetCommit request. Returns the error of each partition (None for success). Raises an error of the
        whole request."""
        if not offsets:
            return {}
        self._check_membership()
        identity = (
            self._member.identity
            if self._subscription.is_subscribed
            else self._member.identity._replace(generation_id=-1, member_id="")
        )
        response = await self._coordinator.send(commit_request(identity, offsets), max_version=9)
        codes = commit_results(response)
        return {tp: self._to_error(codes.get(tp, -1), tp, identity.generation_id) for tp in offsets}

    def _check_membership(self) -> None:
        """Raises if this member may not commit now."""
        if not self._subscription.is_subscribed or self._member.may_commit:
            return
        if self._member.is_member:
            raise RebalanceInProgressError(
                f"{self._member}: Offset commit cannot be completed since the consumer is undergoing a rebalance: "
                "poll, then commit again"
            )
        if not self._member.was_member:
            raise RebalanceInProgressError(
                f"{self._member}: Offset commit cannot be completed since the consumer has not joined the group yet: "
                "poll, then commit again"
            )
        raise CommitFailedError(_COMMIT_FAILED.format(self._member))

    def _to_error(self, code: int, tp: TopicPartition, generation: int) -> KafkaError | None:
        """Returns the error to raise for an error code. Rejoins if the group has removed this member or rebalances."""
        error = self._coordinator.error(code)
        is_same_generation = self._member.generation == generation
        if isinstance(error, RequestTimedOutError):
            self._coordinator.forget("an offset commit timed out")
        elif isinstance(error, RebalanceInProgressError):
            if is_same_generation:
                self._rejoin("an offset commit found the group rebalancing")
            return RebalanceInProgressError(
                f"{self._member}: Offset commit cannot be completed since the group is rebalancing: poll, then commit "
                f"{tp} again"
            )
        elif isinstance(error, FencedInstanceIdError):
            return error if is_same_generation else CommitFailedError(_COMMIT_FAILED.format(self._member))
        elif isinstance(error, _MEMBERSHIP_LOST):
            if is_same_generation and self._subscription.is_subscribed:
                self._member.reset_generation(keep_id=isinstance(error, IllegalGenerationError))
                self._rejoin("an offset commit found that this member is not in the group")
            return CommitFailedError(_COMMIT_FAILED.format(self._member))
        return error

    async def _fetch(self, tps: frozenset[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        request = fetch_request(self._member.group_id, tps, self._require_stable)
        response = await self._coordinator.send(request, max_version=9)
        code, results = fetch_results(response, self._member.group_id)
        if (error := self._coordinator.error(code)) is not None:
            raise error
        for tp in tps:
            if tp in results and (error := error_for(results[tp][0])) is not None:
                raise error
        return {tp: results[tp][1] if tp in results else None for tp in tps}


_COMMIT_FAILED = (
    "{}: Offset commit cannot be completed since the consumer is not part of an active group: the group has rebalanced "
    "and may have assigned the partitions to another member. The time between polls was longer than "
    "max.poll.interval.ms, or heartbeats stopped for session.timeout.ms"
)
