"""Groups of one coordinator with random members, clocks, lost responses, failed and slow writes, and reloads.

Clients behave like real ones: they join, assign if they are the leader, sync, send heartbeats, commit, and rejoin when
a response requires it; they also crash, pause, return, and continue with old state. The external model in
`tests.support.coordinator.group_oracle` knows which requests may succeed. Invariants, checked all the time:

- no partition has two owners in one generation;
- a committed offset is never lost or moved back, not even by a reload that drops uncommitted records;
- no request of a fenced, removed, expired or outdated member succeeds;
- every request gets exactly one response, and none waits longer than its rebalance may take;
- only existing groups and members have timers;
- the state loaded from the log equals the state before.

`HEADRACE_MODEL_EXAMPLES` sets the number of histories.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.coordinator.group_oracle import SLACK_MS, GroupOracle, Written, stored_groups
from tests.support.coordinator.groups import REBALANCE_MS, SESSION_MS, GroupBench
from tests.support.coordinator.runtime import MemoryLog

from headrace.common.errors import (
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    IllegalGenerationError,
    KafkaError,
    MemberIdRequiredError,
    NotEnoughReplicasError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    for_code,
)
from headrace.coordinator.group.classic_group import ClassicGroup, GroupState
from headrace.coordinator.group.config import GroupConfig
from headrace.coordinator.group.shard import GroupCoordinatorShard
from headrace.coordinator.result import CoordinatorResponse, ProducerInfo
from headrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity, MemberResponse

GROUPS = ("a", "b")
MOSTLY_A = st.sampled_from("aaab")
PARTITIONS = range(4)
REFUSED = (UnknownMemberIdError, FencedInstanceIdError)
EXPIRY_MS = 600_000
"""The interval at which groups expire."""
WHICH = st.integers(0, 30)
"""Selects one of the clients or identities, counted from the newest."""


class Replies(list):  # type: ignore[type-arg]
    """Receives one response. `seen` is called when it is sent, possibly long before the client reads it."""

    def __init__(self, seen: Callable[[Any], None], now_ms: int):
        super().__init__()
        self._seen = seen
        self.since_ms = now_ms

    def append(self, reply: Any) -> None:
        super().append(reply)
        assert len(self) == 1, "a request was answered twice"
        self._seen(reply)


@dataclass(frozen=True)
class Identity:
    """The identity that a member once used; it may be used again much later."""

    group_id: str
    member_id: str
    instance: str | None
    generation: int


@dataclass(eq=False)
class FakeClient:
    """The state that a client process has of its group."""

    group_id: str
    instance: str | None
    version: int
    member_id: str = ""
    generation: int = -1
    leads: bool = False
    share_out: tuple[str, ...] = ()
    """The members, if it is the leader and must assign."""
    join: list[Any] | None = None
    sync: list[Any] | None = None
    needs_join: bool = True
    is_synced: bool = False

    @property
    def identity(self) -> Identity:
        return Identity(self.group_id, self.member_id, self.instance, self.generation)


class GroupModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.bench = GroupBench(GroupConfig(initial_rebalance_delay_ms=100, max_size=4))
        self.oracles = {group_id: GroupOracle(group_id, SESSION_MS) for group_id in GROUPS}
        self.requests: list[Replies] = []
        self.clients: list[FakeClient] = []
        self.alive: list[FakeClient] = []
        self.identities: list[Identity] = []
        self.fast_since_ms = 0
        """The time since when commits are fast."""

    @property
    def log(self) -> MemoryLog:
        return self.bench.log

    @property
    def now_ms(self) -> int:
        return self.bench.context.steady_ms()

    # ---- new clients

    @initialize(slow=st.booleans())
    def found(self, slow: bool) -> None:
        """Starts with a stable group: most rules need one."""
        for instance in (None, None, "one"):
            self.start("a", instance, 9)
        self.all_continue(14, 100)
        assert self.bench.shard.groups["a"].state is GroupState.STABLE
        assert len(self.oracles["a"].owners) == len(PARTITIONS)
        self.log.replicated = not slow

    @rule(
        group_id=MOSTLY_A,
        instance=st.sampled_from([None, "one", "one", "two"]),
        version=st.sampled_from([3, 5, 9, 9]),
        joins=st.booleans(),
    )
    def start(self, group_id: str, instance: str | None, version: int, joins: bool = False) -> None:
        client = FakeClient(group_id, instance if version >= 5 else None, version)
        self.clients.append(client)
        self.alive.append(client)
        if joins:
            self.send_join(client)

    @rule(rounds=st.integers(1, 8), ms=st.sampled_from([0, 100, 1_000]))
    def all_continue(self, rounds: int, ms: int) -> None:
        """All clients do their next step, as in an undisturbed group."""
        for _ in range(rounds):
            self.let_pass(ms)
            for client in self.alive:
                self.step(client)
            if self.log.failure is not None:
                self.log.failure = None

    @rule(assigns=st.booleans())
    def all_join(self, assigns: bool) -> None:
        """All clients join; only leaders send SyncGroup."""
        for client in sorted(self.alive, key=lambda client: not client.leads):  # a leader that joins starts a rebalance
            client.sync = None
            if client.join is None:
                self.send_join(client)
        self.let_pass(100)
        for client in self.alive:
            self.read_join(client)
            if assigns and client.share_out and not client.needs_join:
                self.send_sync(client)

    @rule()
    def restart(self) -> None:
        """A static member restarts and joins at once."""
        self.alive = [each for each in self.alive if each.instance != "one"]
        self.start("a", "one", 9, joins=True)

    @rule(which=st.lists(WHICH, min_size=1, max_size=6))
    def some_continue(self, which: list[int]) -> None:
        for each in which:
            if self.alive:
                self.step(self.alive[-1 - each % len(self.alive)])

    @rule(seconds=st.sampled_from([12, 32, 64]))
    def only_send_heartbeats(self, seconds: int) -> None:
        """All clients only send heartbeats."""
        for _ in range(0, seconds, 4):
            for client in self.alive:
                if client.generation >= 0 and client.join is None and client.sync is None:
                    self.read_error(client, self.record_heartbeat(client.identity))
            self.let_pass(4_000)
            self.check_pending_requests()

    def step(self, client: FakeClient) -> None:
        """A client's next step: it reads a response or sends a request."""
        if client.join is not None:
            self.read_join(client)
        elif client.sync is not None:
            self.read_sync(client)
        elif client.needs_join:
            self.send_join(client)
        elif not client.is_synced:
            self.send_sync(client)
        else:
            self.read_error(client, self.record_heartbeat(client.identity))

    def pick(self, which: int) -> FakeClient | None:
        return self.clients[-1 - which % len(self.clients)] if self.clients else None

    # ---- unexpected requests

    @rule(which=WHICH)
    def rejoin(self, which: int) -> None:
        """A client sends a new request without waiting for its response."""
        client = self.pick(which)
        if client is not None:
            client.sync = None
            self.send_join(client)

    @rule(which=WHICH)
    def lose_response(self, which: int) -> None:
        client = self.pick(which)
        if client is not None:
            client.join = client.sync = None
            client.needs_join = True

    @rule(which=WHICH)
    def send_heartbeat_now(self, which: int) -> None:
        client = self.pick(which)
        if client is not None and client.generation >= 0:
            self.read_error(client, self.record_heartbeat(client.identity))

    @rule(
        which=WHICH,
        partition=st.integers(0, 1),
        offset=st.integers(0, 1000),
        transactional=st.booleans(),
    )
    def commit_now(self, which: int, partition: int, offset: int, transactional: bool) -> None:
        client = self.pick(which)
        if client is not None:
            replies = self.commit(client.identity, partition, offset, transactional)
            if replies and replies[0] != 0:
                self.read_error(client, replies[0])

    @rule(which=WHICH)
    def leave(self, which: int) -> None:
        client = self.pick(which)
        if client is not None and client.member_id:
            self.remove(client.group_id, client.member_id, client.instance)
            self.alive = [each for each in self.alive if each is not client]

    @rule(which=WHICH)
    def pause_or_resume(self, which: int) -> None:
        """A client pauses, and continues with its old state."""
        client = self.pick(which)
        if client in self.alive:
            self.alive.remove(client)
        elif client is not None:
            self.alive.append(client)

    @rule(group_id=st.sampled_from(GROUPS), instance=st.sampled_from(["one", "two"]))
    def remove_by_instance(self, group_id: str, instance: str) -> None:
        self.remove(group_id, "", instance)

    @rule(group_id=MOSTLY_A, partition=st.integers(0, 1), offset=st.integers(0, 1000))
    def commit_without_group(self, group_id: str, partition: int, offset: int) -> None:
        self.commit(Identity(group_id, "", None, -1), partition, offset)

    @precondition(lambda self: self.log.replicated)
    @rule(group_id=MOSTLY_A, committed=st.booleans())
    def end_transaction(self, group_id: str, committed: bool) -> None:
        self.log.failure = None
        self.bench.end_transaction(self.producer(group_id), committed)
        self.oracles[group_id].end_transaction(self.log.end_offset(), committed)

    @precondition(lambda self: self.log.replicated)
    @rule(group_id=st.sampled_from(GROUPS))
    def delete(self, group_id: str) -> None:
        if self.bench.ask(lambda shard: shard.delete_group(group_id)) is None:
            self.oracles[group_id].deleted()

    # ---- stale requests of any earlier member

    @rule(
        which=WHICH,
        kind=st.sampled_from(["beat", "sync", "sync", "commit", "txn", "join"]),
        number=st.integers(0, 1000),
        instance=st.sampled_from(["own", "own", "own", "one", None]),
    )
    def repeat_old_request(self, which: int, kind: str, number: int, instance: str | None) -> None:
        if not self.identities:
            return
        said = self.identities[-1 - which % len(self.identities)]
        if instance != "own":
            said = replace(said, instance=instance)
        if kind == "beat":
            self.record_heartbeat(said)
        elif kind == "sync":
            self.sync(said, ())
        elif kind == "join":
            self.join(said, 9)
        else:
            self.commit(said, number % 2, number, transactional=kind == "txn")

    # ---- requests and their valid responses

    def sent(self, member_id: str, oracle: GroupOracle, seen: Callable[[Any], None]) -> Replies:
        """Tracks a request that may stay pending; its member does not time out meanwhile."""

        def answered(reply: Any) -> None:
            if member_id:
                oracle.waiting[member_id] -= 1
                oracle.heard_ms[member_id] = self.now_ms
            seen(reply)

        if member_id:
            oracle.waiting[member_id] = oracle.waiting.get(member_id, 0) + 1
        replies = Replies(answered, self.now_ms)
        self.requests.append(replies)
        return replies

    def join(self, said: Identity, version: int) -> Replies:
        oracle = self.oracles[said.group_id]
        was_lost = oracle.has_timed_out(said.member_id, self.now_ms)

        def seen(reply: Any) -> None:
            error = for_code(reply.error_code) if reply.error_code else None
            if error is MemberIdRequiredError:
                oracle.handed_ms[reply.member_id] = self.now_ms
                self.identities.append(Identity(said.group_id, reply.member_id, None, -1))
            if error is UnknownMemberIdError and has_waited and said.member_id in oracle.known:
                assert said.member_id in oracle.dead | oracle.leaving, f"{said} waited, and is none any more"
            if error is not None:
                self.note_error(said, error)
                return
            assert said.member_id in ("", reply.member_id)
            own = oracle.instances.get(reply.member_id, said.instance)
            oracle.record_generation(reply.member_id, own, reply.generation_id, self.now_ms)
            self.identities.append(Identity(said.group_id, reply.member_id, own, reply.generation_id))
            if reply.leader == reply.member_id:
                oracle.record_members({member.member_id for member in reply.members}, self.now_ms)

        before = set(oracle.known)
        dead_before = set(oracle.dead)
        has_waited = False
        replies = self.sent(said.member_id, oracle, seen)
        self.bench.join(
            said.member_id, group_id=said.group_id, instance=said.instance, version=version, replies=replies
        )
        has_waited = not replies
        accepted = not replies or not replies[0].error_code
        if accepted and said.member_id:
            assert said.member_id not in oracle.dead
            handed_ms = oracle.handed_ms.pop(said.member_id, self.now_ms)
            assert self.now_ms - handed_ms <= SESSION_MS + SLACK_MS, f"{said.member_id} was to be forgotten"
            assert said.instance in (None, oracle.instances.get(said.member_id))
            assert not was_lost or said.member_id not in before, f"{said.member_id} joined after its session"
        if accepted and said.instance is not None and not said.member_id:
            new = {replies[0].member_id} if replies else set()
            oracle.dead |= {each for each in before - new if oracle.instances.get(each) == said.instance}
        if not accepted and said.instance is not None and not said.member_id:
            # The replacement was not written, so the old member stays. Its pending requests were fenced, as in Kafka.
            oracle.dead -= {each for each in oracle.dead - dead_before if oracle.instances[each] == said.instance}
        return replies

    def sync(self, said: Identity, members: tuple[str, ...]) -> Replies:
        oracle = self.oracles[said.group_id]
        may = oracle.may_succeed(said.member_id, said.instance, said.generation, self.now_ms)

        def seen(reply: Any) -> None:
            if reply.error_code:
                self.note_error(said, for_code(reply.error_code))
            else:
                oracle.record_assignment(said.member_id, said.generation, reply.assignment)
                stored = stored_groups(self.log.batches)[said.group_id]
                written = {each.member_id: each.assignment for each in stored.members}
                assert (stored.generation, written[said.member_id]) == (said.generation, reply.assignment)

        shares: dict[str, bytes] = {}
        for partition in PARTITIONS if members else ():
            member = members[(partition + said.generation) % len(members)]  # different assignments in each generation
            shares[member] = shares.get(member, b"") + bytes([partition])
        replies = self.sent(said.member_id, oracle, seen)
        self.bench.sync(
            said.member_id,
            said.generation,
            shares,
            instance=said.instance,
            group_id=said.group_id,
            replies=replies,
        )
        assert may or (replies and replies[0].error_code), f"{said} may not ask for its share"
        return replies

    def record_heartbeat(self, said: Identity) -> type[KafkaError] | None:
        oracle = self.oracles[said.group_id]
        may = oracle.may_succeed(said.member_id, said.instance, said.generation, self.now_ms)
        error = self.bench.heartbeat(said.member_id, said.generation, instance=said.instance, group_id=said.group_id)
        if error is None or error is RebalanceInProgressError:
            assert may, f"{said} may not beat"
            oracle.heard_ms[said.member_id] = self.now_ms
        else:
            self.note_error(said, error)
        return error

    def commit(self, said: Identity, partition: int, offset: int, transactional: bool = False) -> Replies:
        oracle = self.oracles[said.group_id]
        may = oracle.may_succeed(said.member_id, said.instance, said.generation, self.now_ms)
        entry: Written | None = None

        def seen(reply: int | type[KafkaError]) -> None:
            if reply == 0:
                assert entry is None or transactional or entry in oracle.written.get(partition, [entry])
                told.append(entry)
                if entry is not None:
                    entry.is_told = True
            elif isinstance(reply, type):
                self.note_error(said, reply)

        told: list[Written | None] = []
        before = self.log.end_offset()
        replies = self.sent(said.member_id, oracle, seen)
        self.bench.commit_later(
            offset,
            said.member_id,
            said.generation,
            instance=said.instance,
            partition=partition,
            group_id=said.group_id,
            producer=self.producer(said.group_id) if transactional else None,
            replies=replies,
        )
        if self.log.end_offset() > before:
            assert may or said.generation < 0, f"{said} may not commit"
            if said.generation < 0 and not transactional:
                oracle.dead |= oracle.known  # rejected by a group with members
            entry = Written(self.log.end_offset(), offset, is_told=bool(told))
            if transactional:
                oracle.pending[partition] = entry
            else:
                oracle.written.setdefault(partition, []).append(entry)
        else:
            assert not told, "a commit was told that is not in the log"
        return replies

    def remove(self, group_id: str, member_id: str, instance: str | None) -> None:
        oracle = self.oracles[group_id]
        was_dead = member_id in oracle.dead
        gone = {
            each for each in oracle.known if each == member_id or (not member_id and oracle.instances[each] == instance)
        }

        def seen(outcome: CoordinatorResponse[list[MemberResponse]]) -> None:
            if outcome.error is None and outcome.result()[0].error_code == 0:
                assert not was_dead, f"{member_id} left twice"
                oracle.dead |= gone

        oracle.leaving |= gone
        identity = MemberIdentity(member_id=member_id, group_instance_id=instance)
        request = LeaveGroupRequest(group_id=group_id, members=[identity])
        self.bench.runtime.write(
            0, lambda shard: shard.members.leave(request.group_id, request.members), self.sent("", oracle, seen).append
        )

    def note_error(self, said: Identity, error: type[KafkaError]) -> None:
        oracle = self.oracles[said.group_id]
        if error in REFUSED and said.member_id in oracle.known:
            if said.instance in (None, oracle.instances[said.member_id]):
                oracle.dead.add(said.member_id)
        elif said.member_id and error not in (IllegalGenerationError, *REFUSED):
            oracle.heard_ms[said.member_id] = self.now_ms  # perhaps

    @staticmethod
    def producer(group_id: str) -> ProducerInfo:
        return ProducerInfo(GROUPS.index(group_id), 0)

    # ---- handling of responses

    def send_join(self, client: FakeClient) -> None:
        client.join = self.join(client.identity, client.version)

    def send_sync(self, client: FakeClient) -> None:
        client.sync = self.sync(client.identity, client.share_out)

    def read_join(self, client: FakeClient) -> None:
        if not client.join:
            return
        (reply,), client.join = client.join, None
        error = for_code(reply.error_code) if reply.error_code else None
        if error is MemberIdRequiredError:
            client.member_id = reply.member_id
        elif error is not None:
            self.read_error(client, error)
        else:
            client.member_id, client.generation = reply.member_id, reply.generation_id
            client.leads = reply.leader == reply.member_id
            client.share_out = tuple(member.member_id for member in reply.members if not reply.skip_assignment)
            client.needs_join = client.is_synced = False

    def read_sync(self, client: FakeClient) -> None:
        if not client.sync:
            return
        (reply,), client.sync = client.sync, None
        client.is_synced = not reply.error_code
        if reply.error_code:
            self.read_error(client, for_code(reply.error_code))

    def read_error(self, client: FakeClient, error: type[KafkaError] | None) -> None:
        if error is None:
            return
        client.needs_join = True
        if error in REFUSED:
            client.member_id, client.generation = "", -1

    # ---- environment

    @rule(ms=st.sampled_from([1, 100, 1_000, 5_000, 5_000, 10_000, 30_000, EXPIRY_MS]))
    def pass_time(self, ms: int) -> None:
        self.let_pass(ms)

    def let_pass(self, ms: int) -> None:
        """Passes time. Empty groups without offsets expire meanwhile."""
        existed = set(self.bench.shard.groups)
        self.bench.pass_time(ms)
        for group_id in existed - set(self.bench.shard.groups):
            oracle = self.oracles[group_id]
            assert not oracle.pending, f"{group_id} expired with an open transaction"
            assert not any(oracle.written.values()), f"{group_id} expired with offsets"
            oracle.deleted()

    @rule()
    def fail_writes(self) -> None:
        self.log.failure = NotEnoughReplicasError("too few")

    @rule(slow=st.sampled_from([True, True, False]))
    def delay_commits(self, slow: bool) -> None:
        if not slow and not self.log.replicated:
            self.log.commit()
            self.fast_since_ms = self.now_ms
        self.log.replicated = not slow

    @rule(fail=st.booleans())
    def commit_pending(self, fail: bool) -> None:
        self.log.commit(CoordinatorNotAvailableError("too slow") if fail else None)
        self.check_replay()

    @rule(lose=st.booleans())
    def reload(self, lose: bool) -> None:
        """The coordinator moves; with `lose`, to a broker without the uncommitted records."""
        self.check_replay()
        self.bench.runtime.unload(0)
        assert len(self.bench.timer) == 0
        assert all(self.requests), "somebody waits for a coordinator that is gone"
        if lose:
            self.log.truncate()
        self.log.failure = None
        self.bench.load()
        stored = stored_groups(self.log.batches)
        for oracle in self.oracles.values():
            oracle.reloaded(self.log.end_offset(), stored.get(oracle.group_id), self.now_ms)

    @rule()
    def check_replay(self) -> None:
        """Replaying the log gives the live state: offsets, and groups that are not rebalancing."""
        fresh = GroupBench(self.bench.config)
        fresh.runtime.unload(0)
        fresh.log, fresh.clock.now_ms = self.log, self.bench.clock.now_ms
        fresh.load()
        for group_id in GROUPS:
            live, loaded = self.bench.shard.groups.get(group_id), fresh.shard.groups.get(group_id)
            assert offsets_of(self.bench.shard, group_id) == offsets_of(fresh.shard, group_id)
            if live is not None and live.state in (GroupState.STABLE, GroupState.EMPTY) and live.is_stored:
                assert loaded is not None
                if live.state is GroupState.STABLE or not self.log.refused:  # Empty even if the write was rejected
                    assert durable(live) == durable(loaded)

    # ---- always

    @invariant()
    def check_pending_requests(self) -> None:
        """A rebalance ends in time: initial delay, rebalance timeout, and the same timeout for SyncGroup."""
        longest_ms = 100 + 2 * REBALANCE_MS + SLACK_MS
        for replies in self.requests:
            waits_ms = self.now_ms - max(replies.since_ms, self.fast_since_ms)
            assert replies or not self.log.replicated or waits_ms <= longest_ms, f"a request waits for {waits_ms} ms"

    @invariant()
    def members_of_a_generation_have_joined(self) -> None:
        for oracle in self.oracles.values():
            oracle.check_assignments()

    @invariant()
    def committed_offsets_are_kept(self) -> None:
        for oracle in self.oracles.values():
            for partition in PARTITIONS:
                assert self.bench.committed(partition=partition, group_id=oracle.group_id) == oracle.committed(
                    partition
                )

    @invariant()
    def only_existing_members_have_timers(self) -> None:
        groups = self.bench.shard.groups
        scheduled = self.bench.context.scheduled()
        assert len(self.bench.timer) == len(scheduled)
        for key in scheduled - {"expiry"}:
            assert isinstance(key, tuple)
            kind, group, rest = key[0], groups[key[1]], key[2:]
            assert kind != "member" or rest[0] in group.members
            assert kind != "pending" or rest[0] in group.pending_joins
            assert kind != "join" or group.state is GroupState.PREPARING_REBALANCE
            assert kind != "sync" or group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)

    @invariant()
    def group_states_are_consistent(self) -> None:
        for group in self.bench.shard.groups.values():
            check_sound(group, self.bench.config.max_size)
        self.requests = [replies for replies in self.requests if not replies]

    def teardown(self) -> None:
        self.log.failure, self.log.replicated = None, True
        for _ in range(10):
            self.log.commit()
            self.bench.pass_time(300_000)
        assert all(self.requests), "a request is left without an answer"
        for group in self.bench.shard.groups.values():
            assert group.state is GroupState.EMPTY
            assert not group.pending_joins
        assert self.bench.context.scheduled() == {"expiry"}


def offsets_of(shard: GroupCoordinatorShard, group_id: str) -> object:
    offsets = shard.offsets_of(group_id)
    return {tp: each[:5] for tp, each in offsets}, offsets.pending_partitions()


def durable(group: ClassicGroup) -> object:
    protocol = group.protocol or ""
    return (
        group.state,
        group.generation_id,
        group.protocol_type,
        group.protocol,
        group.leader_id,
        group.static_members,
        [
            (
                each.member_id,
                each.group_instance_id,
                each.client_id,
                each.session_timeout_ms,
                each.rebalance_timeout_ms,
                each.metadata(protocol),
                each.assignment,
            )
            for each in group.members.values()
        ],
    )


def check_sound(group: ClassicGroup, max_size: int) -> None:
    members = group.members
    assert all(member.member_id == member_id for member_id, member in members.items())
    assert group.static_members == {
        member.group_instance_id: member.member_id for member in members.values() if member.group_instance_id
    }
    assert not members or group.leader_id in members
    assert not group.pending_joins & members.keys()
    assert bool(members) == (group.state is not GroupState.EMPTY) or group.state is GroupState.PREPARING_REBALANCE
    if group.state is not GroupState.PREPARING_REBALANCE:
        assert not any(member.join_callback for member in members.values())
    if group.state is GroupState.PREPARING_REBALANCE:
        assert not any(member.sync_callback for member in members.values())
    if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
        # A static member keeps its place while it is away, also if others have filled the group meanwhile.
        assert len(members) - len(group.static_members) <= max_size
        assert group.pending_syncs <= members.keys()


TestGroupModel = GroupModel.TestCase
TestGroupModel.settings = settings(
    max_examples=int(os.environ.get("HEADRACE_MODEL_EXAMPLES", "60")), stateful_step_count=50, deadline=None
)


def test_assignment_commits_while_next_generation_waits_for_its_own() -> None:
    """A history that random search rarely finds."""
    model = GroupModel()
    model.found(slow=True)
    model.all_join(assigns=True)
    model.all_join(assigns=False)
    for client in model.alive:
        if not client.leads:
            model.step(client)
    model.commit_pending(fail=False)
    assert [client.sync for client in model.alive if not client.leads] == [[], []]
    model.all_continue(rounds=3, ms=0)
    model.delay_commits(slow=False)
    model.teardown()
