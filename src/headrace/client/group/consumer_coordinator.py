"""The group membership of a consumer: joins the group while the consumer is subscribed, and leaves it.

Owner: the loop. Any thread may call `poll_began`, `poll_ended`, `polled` and `group_metadata`, and read `rebalancing`.
There are three tasks: one joins the group when needed, one sends heartbeats (`heartbeat`), one commits offsets
periodically (`commit_request_manager`).
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

_MAX_IMMEDIATE_ATTEMPTS = 5
"""After this many immediate attempts in a row, wait before the next."""

DEFAULT_STRATEGY = ("range", "cooperative-sticky")


class ConsumerCoordinator:
    """A consumer as a member of its group."""

    def __init__(
        self,
        core: ClientCore,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        hooks: RebalanceHooks,
        *,
        sender: Sender | None = None,
        on_commit: OnCommit | None = None,
    ):
        if config.heartbeat_interval_ms >= config.session_timeout_ms:
            raise ConfigError(
                f"heartbeat.interval.ms ({config.heartbeat_interval_ms}) must be less than session.timeout.ms "
                f"({config.session_timeout_ms})"
            )
        group_id = config.group_id
        assert group_id is not None
        self._core = core
        self._config = config
        self._subscription = subscription
        self._hooks = hooks
        self.member = Member(group_id, config.group_instance_id)
        self._sender = sender or CoordinatorSender(core, group_id)
        self._coordinator = CoordinatorClient(self._sender)
        self._poll_timer = PollTimer(core.clock, config.max_poll_interval_ms)
        assignors = make_assignors(config.partition_assignment_strategy or DEFAULT_STRATEGY)
        self.commits = CommitRequestManager(
            self._coordinator,
            self.member,
            subscription,
            core.backoff,
            default_timeout_ms=config.default_api_timeout_ms,
            auto_commit_ms=config.auto_commit_interval_ms if config.enable_auto_commit else None,
            require_stable=config.isolation_level == "read_committed",
            rejoin=self.request_rejoin,
            on_commit=on_commit,
        )
        self._heartbeats = HeartbeatTask(
            self._coordinator,
            self.member,
            self._poll_timer,
            interval_ms=config.heartbeat_interval_ms,
            session_timeout_ms=config.session_timeout_ms,
            rejoin=self.request_rejoin,
            on_failure=self._handle_heartbeat_failure,
            on_poll_timeout=self._handle_poll_timeout,
        )
        self._rebalance = Rebalance(
            self._coordinator,
            self.member,
            subscription,
            assignors,
            rebalance_protocol(assignors),
            hooks,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.max_poll_interval_ms,
            request_timeout_ms=config.request_timeout_ms,
            rack=config.client_rack or None,
            find_topics=self._find_topics,
            commit_processed=lambda: self.commits.commit_processed(config.default_api_timeout_ms),
        )
        self.rebalancing = False
        """True from the start of a rebalance until the new assignment is applied. Any thread may read it."""
        self._needs_join = asyncio.Event()
        self._reason = ""
        self._failure: KafkaError | None = None
        self._waits_for_poll = False
        self._is_closed = False
        self._tasks: list[asyncio.Task[None]] = []
        self._unlisten: Callable[[], None] = _do_nothing
        self._rebalances = 0
        self._rebalanced_at = core.clock.monotonic()
        self._last_reason = ""

    # ---- called by the consumer

    async def start(self) -> None:
        """Starts the tasks. They join the group whenever the consumer is subscribed."""
        self._unlisten = self._core.metadata.on_change(self._metadata_changed)
        self.commits.start()
        self._tasks = [
            asyncio.create_task(self._join_loop(), name="membership"),
            asyncio.create_task(self._heartbeats.run(), name="heartbeats"),
        ]
        self.subscription_changed()

    def subscription_changed(self) -> None:
        """Rejoins if the subscription has changed since the last join."""
        if self.member.state is MemberState.UNJOINED:
            self._poll_timer.restart()
        if self._rebalance.assigned_topics is not None:
            self._core.metadata.track(self._rebalance.group_topics)
        if self._subscription.is_subscribed and (
            self.member.state is MemberState.UNJOINED or self._subscription.topics != self._rebalance.joined_topics
        ):
            self.request_rejoin("the subscription changed" if self.member.is_member else "a consumer subscribed")

    def request_rejoin(self, reason: str) -> None:
        """Lets the join task join the group again."""
        self._reason = reason
        self._needs_join.set()

    def poll_began(self) -> None:
        """Stops the `max.poll.interval.ms` timer, because a poll begins. Thread-safe."""
        self._poll_timer.began()

    def poll_ended(self) -> None:
        """Restarts the `max.poll.interval.ms` timer, because a poll has ended. Thread-safe."""
        self._poll_timer.ended()

    def polled(self) -> None:
        """Restarts the `max.poll.interval.ms` timer for a poll that began and ended at once. Thread-safe."""
        self._poll_timer.ended()

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Returns the current membership, for `send_offsets_to_transaction`. Thread-safe."""
        return self.member.metadata()

    async def leave(self, reason: str = "the consumer unsubscribed", *, force: bool = False) -> None:
        """Revokes all partitions and leaves the group. The tasks stay for the next subscription. Call it before the
        subscription is cleared."""
        try:
            await self._stop_joining()
            await self._revoke_all()
            await self._send_leave(reason, force)
        finally:
            self.member.transition_to(MemberState.UNJOINED)
            self.member.was_member = False
            self._restart_joining()

    async def close(self, *, leave: bool | None = None, timeout_ms: float | None = None) -> None:
        """Commits the offsets of processed records (if automatic commits are enabled), revokes all partitions and
        leaves the group.

        Static members stay in the group, so that they get their partitions back after a restart, unless `leave` is
        True. With `leave` False no member leaves. Steps that exceed the timeout are skipped.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._unlisten()
        timeout_ms = self._config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._stop_joining()
                await self._revoke_all()
                await self.commits.commit_processed(timeout_ms)  # for partitions that the user assigned
                await self.commits.stop()
                if leave is not False:
                    await self._send_leave("the consumer was closed", force=leave is True)
        except TimeoutError:
            _logger.warning(
                "%s: close() did not finish within %.0f ms; offsets may be uncommitted, and the group may wait for the "
                "session timeout",
                self.member,
                timeout_ms,
            )
        finally:
            await self.commits.abandon()
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)
            self.member.transition_to(MemberState.UNJOINED)
            self.member.reset_generation()

    # ---- joining

    async def _join_loop(self) -> None:
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
                _logger.info("%s: rejoining the group: %s", self.member, retry)
                self._needs_join.set()
                if not retry.immediately or failures >= _MAX_IMMEDIATE_ATTEMPTS:
                    await asyncio.sleep(self._core.backoff.wait_seconds(failures))
                failures += 1
            except KafkaError as error:
                self._needs_join.set()
                if not error.retriable:
                    self._report(error)
                    self._waits_for_poll = True  # wait for the next poll, which raises the error
                _logger.info("%s: joining the group failed, retrying: %s", self.member, error)
                await asyncio.sleep(self._core.backoff.wait_seconds(failures))
                failures += 1
            except Exception as error:  # raised by an assignor
                _logger.exception("%s: rebalance failed; the next poll raises the error", self.member)
                self._hooks.failed(error)
                self._needs_join.set()
                self._waits_for_poll = True
                await asyncio.sleep(self._core.backoff.wait_seconds(failures))
                failures += 1

    async def _join(self) -> None:
        self.member.transition_to(MemberState.PREPARING)
        self.rebalancing = True
        try:
            if self._waits_for_poll:
                await self._hooks.wait_for_poll()
                self._waits_for_poll = False
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            await self._rebalance.prepare()
            self._needs_join.clear()
            self._last_reason = self._reason
            joined = await self._rebalance.join(self._reason)
            assignment = await self._rebalance.sync(joined)
            rejoin_reason = await self._rebalance.apply(assignment)
        finally:
            self.rebalancing = False
            if self.member.state is not MemberState.STABLE:
                self.member.transition_to(MemberState.PREPARING)
        self._rebalances += 1
        self._rebalanced_at = self._core.clock.monotonic()
        if rejoin_reason is not None:
            self.request_rejoin(rejoin_reason)
        elif not self.member.is_member:
            self.request_rejoin("this member is no longer in the group")
        else:
            self.subscription_changed()
            self._metadata_changed(self._core.metadata.view, self._core.metadata.view)

    async def _stop_joining(self) -> None:
        """Cancels the join task."""
        if self._tasks and not self._tasks[0].done():
            if self.member.state in (MemberState.JOINING, MemberState.SYNCING):
                self._coordinator.interrupt()
            self._tasks[0].cancel()
            await asyncio.wait(self._tasks[:1])

    def _restart_joining(self) -> None:
        self._needs_join.clear()
        if self._tasks and not self._is_closed:
            self._tasks[0] = asyncio.create_task(self._join_loop(), name="membership")

    async def _revoke_all(self) -> None:
        if self._subscription.is_subscribed:
            if self.member.is_member:
                if not self.member.may_commit:  # a join was in progress: the coordinator still accepts commits
                    self.member.transition_to(MemberState.PREPARING)
                await self._rebalance.revoke(self._subscription.assigned)
            else:
                await self._rebalance.lose(self._subscription.assigned)

    async def _send_leave(self, reason: str, force: bool) -> None:
        """Sends LeaveGroup if there is a member id. If it fails, the coordinator removes the member after the session
        timeout."""
        member = self.member
        left_as = member.identity
        member.reset_generation()
        if not left_as.member_id or (member.is_static and not force):
            return
        request = LeaveGroupRequest(
            group_id=left_as.group_id,
            member_id=left_as.member_id,
            members=[
                MemberIdentity(
                    member_id=left_as.member_id, group_instance_id=left_as.group_instance_id, reason=reason[:255]
                )
            ],
        )
        try:
            response = await self._coordinator.send(request)
            codes = [response.error_code, *(member_response.error_code for member_response in response.members)]
            error = next(
                (code_error for code in codes if (code_error := self._coordinator.error(code)) is not None), None
            )
        except KafkaError as failure:
            error = failure
        if error is not None:
            _logger.info("%s: LeaveGroup failed; the coordinator will wait for the session timeout: %s", member, error)

    # ---- events

    async def _handle_poll_timeout(self) -> None:
        """Leaves the group because the user does not poll. The next poll rejoins, and returns none of the records that
        were fetched before: other members may own the partitions by then."""
        self._waits_for_poll = True
        self._subscription.start_revoking(self._subscription.assigned)
        await self._send_leave("consumer poll timeout has expired", force=False)
        self.request_rejoin("the consumer polls again")

    def _handle_heartbeat_failure(self, error: KafkaError) -> None:
        """Handles an error of a heartbeat that cannot be retried."""
        self._failure = error
        self.request_rejoin("a heartbeat on_failure")

    def _report(self, error: KafkaError) -> None:
        _logger.error("%s: fatal error, the next poll raises it: %s", self.member, error)
        if isinstance(error, FencedInstanceIdError):
            self._core.events.error(error, fatal=True)
        self._hooks.failed(error)

    def _metadata_changed(self, old: ClusterView, new: ClusterView) -> None:  # noqa: ARG002
        """Rejoins as the leader if the partitions of the group's topics have changed."""
        topics = self._rebalance.assigned_topics
        if topics is None or self.member.state is not MemberState.STABLE or not self._subscription.is_subscribed:
            return
        now = make_topics(new, self._rebalance.group_topics)
        if now.counts != topics.counts:
            self.request_rejoin("the partitions of subscribed topics changed")
        elif self._config.client_rack and now.racks != topics.racks:
            self.request_rejoin("the racks of subscribed topics changed")

    async def _find_topics(self, names: frozenset[str]) -> Topics:
        """Returns the topics of the group for the assignor. The leader also tracks their metadata from now on."""
        self._core.metadata.track(names)
        view = self._core.metadata.view
        if any(view.topic(name) is None for name in names):
            view = await self._core.metadata.update(names, self._config.request_timeout_ms)
        return make_topics(view, names)

    def statistics(self) -> dict[str, Any]:
        """Returns the `cgrp` object of librdkafka's statistics."""
        now = self._core.clock.monotonic()
        has_coordinator = getattr(self._sender, "node_id", None) is not None
        return {
            "state": "up" if has_coordinator else "wait-coord",
            "stateage": int((now - self._rebalanced_at) * 1000),
            "join_state": _JOIN_STATES[self.member.state],
            "rebalance_age": int((now - self._rebalanced_at) * 1000),
            "rebalance_cnt": self._rebalances,
            "rebalance_reason": self._last_reason,
            "assignment_size": len(self._subscription.assigned),
        }


def _do_nothing() -> None:
    pass


_JOIN_STATES = {
    MemberState.UNJOINED: "init",
    MemberState.PREPARING: "wait-unassign-call",
    MemberState.JOINING: "wait-join",
    MemberState.SYNCING: "wait-sync",
    MemberState.STABLE: "steady",
}


def make_topics(view: ClusterView, names: frozenset[str]) -> Topics:
    """Returns the topics that exist, with the racks of their replicas if the brokers have racks."""
    counts: dict[str, int] = {}
    racks: dict[TopicPartition, frozenset[str]] = {}
    rack_of = {node.id: node.rack for node in view.nodes.values() if node.rack}
    for name in sorted(names):
        info = view.topic(name)
        if info is None or not info.partitions:
            continue
        counts[name] = len(info.partitions)
        if rack_of:
            for partition in info.partitions:
                partition_racks = frozenset(rack_of[replica] for replica in partition.replicas if replica in rack_of)
                racks[TopicPartition(name, partition.partition)] = partition_racks
    return Topics(counts, racks)
