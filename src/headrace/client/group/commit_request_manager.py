"""Committed offsets: how far a group has come in each partition.

Owner: the loop. Works for members of a group and, with generation -1, for a consumer that has chosen its partitions
itself.

Commits are carried out in the order in which they were asked for. One request is under way at a time; what has come in
meanwhile goes into the next one together (a later offset of a partition replaces an earlier one). A commit that is
waited for is tried again after errors that may pass, and later ones go with it, so none can undo a later one.
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

_EXPELLED = (UnknownMemberIdError, IllegalGenerationError)


def _why(last: KafkaError | None) -> str:
    return "" if last is None else f"; the last error: {last}"


class _Commit:
    """A commit on its way. One that somebody waits for is tried again for as long as they wait."""

    def __init__(self, offsets: Offsets, is_waited_for: bool, future: "asyncio.Future[None]"):
        self.offsets = offsets
        self.is_waited_for = is_waited_for
        self.future = future
        self.last_error: KafkaError | None = None


class CommitRequestManager:
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
        """None: offsets are not committed by themselves."""
        self._require_stable = require_stable
        """Whether offsets that a transaction is about to commit are waited for."""
        self._rejoin = rejoin or (lambda reason: None)  # noqa: ARG005
        self.on_commit = on_commit
        """Called after every commit, also automatic ones."""
        self._waiting: list[_Commit] = []
        self._under_way: list[_Commit] = []
        self._task: asyncio.Task[None] | None = None
        self._auto_task: asyncio.Task[None] | None = None
        self.last: dict[TopicPartition, OffsetAndMetadata] = {}
        """What was committed last, by hand or by itself."""

    # ---- for the user

    async def commit(self, offsets: Offsets, *, timeout_ms: float | None = None) -> None:
        """Returns when the offsets are committed.

        Raises CommitFailedError if the group has gone on without this member, RebalanceInProgressError if it must poll
        first (the commit may be repeated after that), KafkaTimeoutError if it could not be done in time, and what the
        coordinator refused it with.
        """
        timeout_ms = self._default_timeout_ms if timeout_ms is None else timeout_ms
        commit = self._add(offsets, is_waited_for=True)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await commit.future
        except TimeoutError as error:
            if isinstance(error, KafkaError):
                raise
            raise KafkaTimeoutError(
                f"{self._member}: offsets were not committed within {timeout_ms:.0f} ms{_why(commit.last_error)}"
            ) from commit.last_error

    def commit_async(self, offsets: Offsets, callback: OnCommit | None = None) -> "asyncio.Future[None]":
        """Commits without waiting and without a second attempt. The callback gets the offsets, and the error if there
        was one; callbacks come in the order of the commits."""
        future = self._add(offsets, is_waited_for=False).future
        if callback is not None:

            def tell(done: "asyncio.Future[None]") -> None:
                if done.cancelled():  # the loop ends
                    return
                error = done.exception()
                assert error is None or isinstance(error, KafkaError)
                callback(offsets, error)

            future.add_done_callback(tell)
        else:
            future.add_done_callback(lambda done: done.exception())  # it is not an error that nobody looks
        return future

    async def committed(
        self, tps: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The offsets that the group has committed; None where it has not."""
        wanted = frozenset(tps)
        if not wanted:
            return {}
        timeout_ms = self._default_timeout_ms if timeout_ms is None else timeout_ms
        failures = 0
        last: KafkaError | None = None
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while True:
                    try:
                        return await self._fetch(wanted)
                    except KafkaError as error:
                        if not error.retriable:
                            raise
                        last = error
                    await asyncio.sleep(self._backoff.wait_seconds(failures))
                    failures += 1
        except TimeoutError as error:
            if isinstance(error, KafkaError):
                raise
            raise KafkaTimeoutError(
                f"group {self._member.group_id}: committed offsets were not told within {timeout_ms:.0f} ms{_why(last)}"
            ) from last

    # ---- automatic commits

    def start(self) -> None:
        """Begins automatic commits, if they are on."""
        if self._auto_commit_ms is not None and self._auto_task is None:
            self._auto_task = asyncio.create_task(self._commit_by_time(self._auto_commit_ms), name="auto-commit")

    async def stop(self) -> None:
        """Ends automatic commits, and waits until nothing is under way."""
        if self._auto_task is not None:
            self._auto_task.cancel()
            await asyncio.wait([self._auto_task])
            self._auto_task = None
        await self.settle()

    async def abandon(self) -> None:
        """Drops everything, whatever its outcome may be. Who waits, or left a callback, is told that nobody knows."""
        tasks = [task for task in (self._task, self._auto_task) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._auto_task = None
        left = [commit for commit in (*self._under_way, *self._waiting) if not commit.future.done()]
        self._under_way = []
        self._waiting = []
        for commit in left:
            closed = f"{self._member}: the consumer was closed before it was known whether the offsets are committed"
            self._finish(commit, IllegalStateError(closed))

    async def settle(self) -> None:
        """Returns when every commit so far has its outcome."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def commit_done(self, timeout_ms: float) -> None:
        """Commits what the user is done with before partitions go, if that is to happen by itself. A failure only shows
        in the log: others will begin a little earlier."""
        if self._auto_commit_ms is None or not (offsets := self._due()):
            return
        try:
            await self.commit(offsets, timeout_ms=timeout_ms)
        except KafkaError as error:
            _logger.warning("%s: offsets were not committed before a rebalance: %s", self._member, error)

    def _due(self) -> dict[TopicPartition, OffsetAndMetadata]:
        offsets = self._subscription.auto_commit_offsets()
        return {tp: each for tp, each in offsets.items() if self.last.get(tp) != each}

    async def _commit_by_time(self, interval_ms: float) -> None:
        failures = 0
        wait = interval_ms / 1000
        while True:
            await asyncio.sleep(wait)
            wait = interval_ms / 1000
            if self._subscription.is_subscribed and not self._member.may_commit:
                continue
            if offsets := self._due():
                try:
                    await self._add(offsets, is_waited_for=False).future
                except KafkaError as error:
                    _logger.warning("%s: an automatic commit failed: %s", self._member, error)
                    if error.retriable:
                        wait = min(wait, self._backoff.wait_seconds(failures))
                        failures += 1
                else:
                    failures = 0

    # ---- inside

    def _add(self, offsets: Offsets, is_waited_for: bool) -> _Commit:
        commit = _Commit(dict(offsets), is_waited_for, asyncio.get_running_loop().create_future())
        self._waiting.append(commit)
        if self._task is None:
            self._task = asyncio.create_task(self._carry_out(), name="commits")
        return commit

    async def _carry_out(self) -> None:
        try:
            failures = 0
            while self._waiting:
                self._under_way, self._waiting = self._waiting, []
                again = await self._attempt(self._under_way)
                self._under_way = []
                self._waiting[:0] = again
                failures = failures + 1 if again else 0
                if again:
                    await asyncio.sleep(self._backoff.wait_seconds(failures - 1))
        finally:
            self._task = None

    async def _attempt(self, commits: list[_Commit]) -> list[_Commit]:
        """Returns the commits that are to be tried again: if one of them is waited for, all, so that none is undone."""
        merged = {tp: each for commit in commits for tp, each in commit.offsets.items()}
        errors: dict[TopicPartition, KafkaError | None]
        try:
            errors = await self._send(merged)
        except KafkaError as error:
            errors = dict.fromkeys(merged, error)
        except Exception as error:
            _logger.exception("%s: a commit could not be written", self._member)
            wrong = KafkaError(f"{self._member}: the commit could not be written: {error}")
            errors = dict.fromkeys(merged, wrong)
        waiting = any(commit.is_waited_for and not commit.future.done() for commit in commits)
        again = []
        for commit in commits:
            failure = next((each for tp in commit.offsets if (each := errors[tp]) is not None), None)
            commit.last_error = failure
            if failure is not None and failure.retriable and waiting and not commit.future.done():
                again.append(commit)
            else:
                self._finish(commit, failure)
        return again

    def _finish(self, commit: _Commit, error: KafkaError | None) -> None:
        if error is None:
            self.last.update(commit.offsets)
        if not commit.future.done():
            if error is None:
                commit.future.set_result(None)
            else:
                commit.future.set_exception(error)
        if self.on_commit is not None:
            self.on_commit(commit.offsets, error)

    async def _send(self, offsets: Offsets) -> dict[TopicPartition, KafkaError | None]:
        """What became of each offset. Raises if all failed together."""
        if not offsets:
            return {}
        self._check_membership()
        identity = (
            self._member.identity
            if self._subscription.is_subscribed
            else self._member.identity._replace(generation_id=-1, member_id="")
        )
        reply = await self._coordinator.send(commit_request(identity, offsets), max_version=9)
        codes = commit_results(reply)
        return {tp: self._understand(codes.get(tp, -1), tp, identity.generation_id) for tp in offsets}

    def _check_membership(self) -> None:
        if not self._subscription.is_subscribed or self._member.may_commit:
            return
        if self._member.is_member:
            raise RebalanceInProgressError(f"{self._member}: joins its group anew; poll, then commit again")
        if not self._member.was_member:
            raise RebalanceInProgressError(f"{self._member}: has not joined its group yet; poll, then commit again")
        raise CommitFailedError(_FAILED.format(self._member))

    def _understand(self, code: int, tp: TopicPartition, generation: int) -> KafkaError | None:
        error = self._coordinator.error(code)
        is_same = self._member.generation == generation
        if isinstance(error, RequestTimedOutError):
            self._coordinator.forget("a commit was not replicated in time")
        elif isinstance(error, RebalanceInProgressError):
            if is_same:
                self._rejoin("a commit found the group rebalancing")
            return RebalanceInProgressError(f"{self._member}: the group rebalances; poll, then commit {tp} again")
        elif isinstance(error, FencedInstanceIdError):
            return error if is_same else CommitFailedError(_FAILED.format(self._member))
        elif isinstance(error, _EXPELLED):
            if is_same and self._subscription.is_subscribed:
                self._member.expelled(keep_id=isinstance(error, IllegalGenerationError))
                self._rejoin("a commit told that the group has gone on without this member")
            return CommitFailedError(_FAILED.format(self._member))
        return error

    async def _fetch(self, tps: frozenset[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        request = fetch_request(self._member.group_id, tps, self._require_stable)
        reply = await self._coordinator.send(request, max_version=9)
        code, found = fetch_results(reply, self._member.group_id)
        if (error := self._coordinator.error(code)) is not None:
            raise error
        for tp in tps:
            if tp in found and (error := error_for(found[tp][0])) is not None:
                raise error
        return {tp: found[tp][1] if tp in found else None for tp in tps}


_FAILED = (
    "{}: the group has gone on without it and its partitions may be another's. Polls were more than "
    "max.poll.interval.ms apart, or heartbeats more than session.timeout.ms"
)
