"""A consumer's membership in its group, for as long as it subscribes.

Owner: the loop. `poll_began`, `poll_ended`, `polled`, `rebalancing` and `group_metadata` are for any thread. Three
tasks: one joins whenever that is needed, one beats (`heartbeats`), one commits by time (`commits`).
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from headrace.client.config.types import ConsumerConfig
from headrace.client.consumer.subscription_state import SubscriptionState
from headrace.client.core import ClientCore
from headrace.client.group.assignors import Topics, make_assignors, rebalance_protocol
from headrace.client.group.commit_request_manager import CommitRequestManager, OnCommit
from headrace.client.group.coordinator_client import CoordinatorClient, CoordinatorSender, Sender
from headrace.client.group.heartbeat import HeartbeatTask, PollTimer
from headrace.client.group.member import Member, MemberState
from headrace.client.group.rebalance import Rebalance, RetryJoin
from headrace.client.group.rebalance_hooks import RebalanceHooks
from headrace.client.metadata_cache import ClusterView
from headrace.client.types import ConsumerGroupMetadata
from headrace.common.errors import ConfigError, FencedInstanceIdError, KafkaError
from headrace.common.types import TopicPartition
from headrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity

__all__ = ["DEFAULT_STRATEGY", "ConsumerCoordinator"]

_logger = logging.getLogger(__name__)

_AT_ONCE = 5
"""After so many attempts in a row there is a wait, whatever the coordinator says."""

DEFAULT_STRATEGY = ("range", "cooperative-sticky")


class ConsumerCoordinator:
    def __init__(
        self,
        core: ClientCore,
        settings: ConsumerConfig,
        subscription: SubscriptionState,
        hooks: RebalanceHooks,
        *,
        sender: Sender | None = None,
        on_commit: OnCommit | None = None,
    ):
        if settings.heartbeat_interval_ms >= settings.session_timeout_ms:
            raise ConfigError(
                f"heartbeat.interval.ms={settings.heartbeat_interval_ms} is not a valid value: expected less than "
                f"session.timeout.ms, {settings.session_timeout_ms}"
            )
        group_id = settings.group_id
        assert group_id is not None
        self._core = core
        self._settings = settings
        self._subscription = subscription
        self._hooks = hooks
        self.member = Member(group_id, settings.group_instance_id)
        self._sender = sender or CoordinatorSender(core, group_id)
        self._coordinator = CoordinatorClient(self._sender)
        self._polls = PollTimer(core.clock, settings.max_poll_interval_ms)
        assignors = make_assignors(settings.partition_assignment_strategy or DEFAULT_STRATEGY)
        self.commits = CommitRequestManager(
            self._coordinator,
            self.member,
            subscription,
            core.backoff,
            default_timeout_ms=settings.default_api_timeout_ms,
            auto_commit_ms=settings.auto_commit_interval_ms if settings.enable_auto_commit else None,
            require_stable=settings.isolation_level == "read_committed",
            rejoin=self.request_rejoin,
            on_commit=on_commit,
        )
        self._heartbeats = HeartbeatTask(
            self._coordinator,
            self.member,
            self._polls,
            interval_ms=settings.heartbeat_interval_ms,
            session_timeout_ms=settings.session_timeout_ms,
            rejoin=self.request_rejoin,
            failed=self._fail,
            expired=self._expire,
        )
        self._rebalance = Rebalance(
            self._coordinator,
            self.member,
            subscription,
            assignors,
            rebalance_protocol(assignors),
            hooks,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.max_poll_interval_ms,
            request_timeout_ms=settings.request_timeout_ms,
            rack=settings.client_rack or None,
            find_topics=self._find_topics,
            commit_done=lambda: self.commits.commit_done(settings.default_api_timeout_ms),
        )
        self.rebalancing = False
        """The group is being joined, or what it gave is being taken. Any thread may read it."""
        self._needs_join = asyncio.Event()
        self._reason = ""
        self._failure: KafkaError | None = None
        self._is_expired = False
        self._is_closed = False
        self._tasks: list[asyncio.Task[None]] = []
        self._unlisten: Callable[[], None] = _nothing
        self._rebalances = 0
        self._rebalanced_at = core.clock.monotonic()
        self._last_reason = ""

    # ---- for the consumer

    async def start(self) -> None:
        """Starts the tasks; from now on the group is joined whenever the subscription asks for one."""
        self._unlisten = self._core.metadata.on_change(self._metadata_changed)
        self.commits.start()
        self._tasks = [
            asyncio.create_task(self._run(), name="membership"),
            asyncio.create_task(self._heartbeats.run(), name="heartbeats"),
        ]
        self.subscription_changed()

    def subscription_changed(self) -> None:
        """Other topics than before are subscribed to."""
        if self.member.state is MemberState.OUT:
            self._polls.restart()
        if self._rebalance.assigned_topics is not None:
            self._core.metadata.track(self._rebalance.group_topics)
        if self._subscription.is_subscribed and (
            self.member.state is MemberState.OUT or self._subscription.topics != self._rebalance.joined_topics
        ):
            self.request_rejoin("the subscription changed" if self.member.is_member else "a consumer subscribed")

    def request_rejoin(self, reason: str) -> None:
        """Joins anew, soon."""
        self._reason = reason
        self._needs_join.set()

    def poll_began(self) -> None:
        """Any thread: a poll begins. Until it ends, the program counts as alive."""
        self._polls.began()

    def poll_ended(self) -> None:
        """Any thread: `max.poll.interval.ms` counts from here."""
        self._polls.ended()

    def polled(self) -> None:
        """Any thread: a poll that took no time."""
        self._polls.ended()

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Any thread: the membership of this moment, for `send_offsets_to_transaction`."""
        return self.member.identity

    async def leave(self, reason: str = "the consumer unsubscribed", *, force: bool = False) -> None:
        """Gives everything up and leaves the group; the tasks stay for the next subscription. To be called before the
        subscription is cleared."""
        try:
            await self._stop_joining()
            await self._give_up_all()
            await self._send_leave(reason, force)
        finally:
            self.member.move(MemberState.OUT)
            self.member.was_member = False
            self._restart_joining()

    async def close(self, *, leave: bool | None = None, timeout_ms: float | None = None) -> None:
        """Commits what the user is done with (if that happens by itself), gives everything up and leaves the group.

        Static members stay in the group, so that they find their partitions when they come back, unless `leave` is
        True; with False nobody leaves. What cannot be done in time is left out.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._unlisten()
        timeout_ms = self._settings.default_api_timeout_ms if timeout_ms is None else timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._stop_joining()
                await self._give_up_all()
                await self.commits.commit_done(timeout_ms)  # for who has chosen its partitions itself
                await self.commits.stop()
                if leave is not False:
                    await self._send_leave("the consumer was closed", force=leave is True)
        except TimeoutError:
            _logger.warning("%s: closing took longer than %.0f ms", self.member, timeout_ms)
        finally:
            await self.commits.abandon()
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)
            self.member.move(MemberState.OUT)
            self.member.expelled()

    # ---- joining

    async def _run(self) -> None:
        failures = 0
        while True:
            await self._needs_join.wait()
            if not self._subscription.is_subscribed:
                self._needs_join.clear()
                continue
            try:
                await self._join()
                failures = 0
            except RetryJoin as retry:
                _logger.info("%s: joins again: %s", self.member, retry)
                self._needs_join.set()
                if not retry.at_once or failures >= _AT_ONCE:
                    await asyncio.sleep(self._core.backoff.wait_seconds(failures))
                failures += 1
            except KafkaError as error:
                self._needs_join.set()
                if not error.retriable:
                    self._tell(error)
                    self._is_expired = True  # tries again at the next poll
                _logger.info("%s: could not join: %s", self.member, error)
                await asyncio.sleep(self._core.backoff.wait_seconds(failures))
                failures += 1
            except Exception as error:  # an assignor's
                _logger.exception("%s: a rebalance failed", self.member)
                self._hooks.failed(error)
                self._needs_join.set()
                self._is_expired = True
                await asyncio.sleep(self._core.backoff.wait_seconds(failures))
                failures += 1

    async def _join(self) -> None:
        self.member.move(MemberState.PREPARING)
        self.rebalancing = True
        try:
            if self._is_expired:
                await self._hooks.at_poll()
                self._is_expired = False
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            await self._rebalance.prepare()
            self._needs_join.clear()
            self._last_reason = self._reason
            joined = await self._rebalance.join(self._reason)
            assignment = await self._rebalance.sync(joined)
            again = await self._rebalance.apply(assignment)
        finally:
            self.rebalancing = False
            if self.member.state is not MemberState.STABLE:
                self.member.move(MemberState.PREPARING)
        self._rebalances += 1
        self._rebalanced_at = self._core.clock.monotonic()
        if again is not None:
            self.request_rejoin(again)
        elif not self.member.is_member:
            self.request_rejoin("the group has gone on without this member")
        else:
            self.subscription_changed()
            self._metadata_changed(self._core.metadata.view, self._core.metadata.view)

    async def _stop_joining(self) -> None:
        """Ends the task that joins, wherever it is."""
        if self._tasks and not self._tasks[0].done():
            if self.member.state in (MemberState.JOINING, MemberState.SYNCING):
                self._coordinator.interrupt()
            self._tasks[0].cancel()
            await asyncio.wait(self._tasks[:1])

    def _restart_joining(self) -> None:
        self._needs_join.clear()
        if self._tasks and not self._is_closed:
            self._tasks[0] = asyncio.create_task(self._run(), name="membership")

    async def _give_up_all(self) -> None:
        if self._subscription.is_subscribed:
            if self.member.is_member:
                if not self.member.may_commit:  # it was about to join: the coordinator still takes commits
                    self.member.move(MemberState.PREPARING)
                await self._rebalance.revoke(self._subscription.assigned)
            else:
                await self._rebalance.lose(self._subscription.assigned)

    async def _send_leave(self, reason: str, force: bool) -> None:
        """Whoever has an id leaves; without a reply the coordinator finds out by itself."""
        member = self.member
        asked = member.identity
        member.expelled()
        if not asked.member_id or (member.is_static and not force):
            return
        request = LeaveGroupRequest(
            group_id=asked.group_id,
            member_id=asked.member_id,
            members=[
                MemberIdentity(
                    member_id=asked.member_id, group_instance_id=asked.group_instance_id, reason=reason[:255]
                )
            ],
        )
        try:
            reply = await self._coordinator.send(request)
            codes = [reply.error_code, *(each.error_code for each in reply.members)]
            error = next((e for code in codes if (e := self._coordinator.error(code)) is not None), None)
        except KafkaError as failure:
            error = failure
        if error is not None:
            _logger.info("%s: could not tell that it leaves: %s", member, error)

    # ---- what others find

    async def _expire(self) -> None:
        """The user does not poll. The group goes on; the next poll joins again, and returns nothing of what was fetched
        before, which others may have by then."""
        self._is_expired = True
        self._subscription.start_revoking(self._subscription.assigned)
        await self._send_leave("no poll for max.poll.interval.ms", force=False)
        self.request_rejoin("the program polls again")

    def _fail(self, error: KafkaError) -> None:
        """A heartbeat was refused for good."""
        self._failure = error
        self.request_rejoin("a heartbeat was refused")

    def _tell(self, error: KafkaError) -> None:
        _logger.error("%s: %s", self.member, error)
        if isinstance(error, FencedInstanceIdError):
            self._core.events.error(error, fatal=True)
        self._hooks.failed(error)

    def _metadata_changed(self, old: ClusterView, new: ClusterView) -> None:  # noqa: ARG002
        """The leader sees to it that new partitions are given out."""
        topics = self._rebalance.assigned_topics
        if topics is None or self.member.state is not MemberState.STABLE or not self._subscription.is_subscribed:
            return
        now = make_topics(new, self._rebalance.group_topics)
        if now.counts != topics.counts:
            self.request_rejoin("the partitions of subscribed topics changed")
        elif self._settings.client_rack and now.racks != topics.racks:
            self.request_rejoin("the racks of subscribed topics changed")

    async def _find_topics(self, names: frozenset[str]) -> Topics:
        """The topics of the group, as the leader needs them; it keeps them current, for others too."""
        self._core.metadata.track(names)
        view = self._core.metadata.view
        if any(view.topic(name) is None for name in names):
            view = await self._core.metadata.update(names, self._settings.request_timeout_ms)
        return make_topics(view, names)

    def statistics(self) -> dict[str, Any]:
        """librdkafka's `cgrp`."""
        now = self._core.clock.monotonic()
        known = getattr(self._sender, "node_id", None) is not None
        return {
            "state": "up" if known else "wait-coord",
            "stateage": int((now - self._rebalanced_at) * 1000),
            "join_state": _JOIN_STATES[self.member.state],
            "rebalance_age": int((now - self._rebalanced_at) * 1000),
            "rebalance_cnt": self._rebalances,
            "rebalance_reason": self._last_reason,
            "assignment_size": len(self._subscription.assigned),
        }


def _nothing() -> None:
    pass


_JOIN_STATES = {
    MemberState.OUT: "init",
    MemberState.PREPARING: "wait-unassign-call",
    MemberState.JOINING: "wait-join",
    MemberState.SYNCING: "wait-sync",
    MemberState.STABLE: "steady",
}


def make_topics(view: ClusterView, names: frozenset[str]) -> Topics:
    """Those topics that exist, with the racks of their replicas if brokers tell theirs."""
    counts: dict[str, int] = {}
    racks: dict[TopicPartition, frozenset[str]] = {}
    rack_of = {node.id: node.rack for node in view.nodes.values() if node.rack}
    for name in sorted(names):
        info = view.topic(name)
        if info is None or not info.partitions:
            continue
        counts[name] = len(info.partitions)
        if rack_of:
            for each in info.partitions:
                found = frozenset(rack_of[replica] for replica in each.replicas if replica in rack_of)
                racks[TopicPartition(name, each.partition)] = found
    return Topics(counts, racks)
