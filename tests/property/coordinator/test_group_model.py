"""A group with random members, clocks, failed writes and reloads.

Clients do what real ones do: join, assign if they lead, sync, beat, commit, and start over when they are told to; and
they crash, hang, come back, and go on with what they remember. Checked all the time:

- no partition is owned by two members in one generation;
- a committed offset is never lost nor moved by a reload;
- a member that was fenced, or dropped, never succeeds again;
- every request is answered once, and none is left unanswered when all time-outs have passed;
- what is loaded is what was stored.
"""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule
from tests.support.groups import GROUP, GroupBench

from headrace.common.errors import (
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    IllegalGenerationError,
    MemberIdRequiredError,
    NotEnoughReplicasError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    for_code,
)
from headrace.coordinator.group.classic import GroupState
from headrace.coordinator.group.config import GroupConfig

PARTITIONS = range(4)
LOST = (UnknownMemberIdError, FencedInstanceIdError)


@dataclass(eq=False)
class FakeClient:
    """What a client remembers of its group."""

    number: int
    instance: str | None
    version: int
    member_id: str = ""
    generation: int = -1
    leads: bool = False
    others: list[str] = field(default_factory=list)
    owned: frozenset[int] = frozenset()
    join: list[Any] | None = None
    sync: list[Any] | None = None
    needs_join: bool = True
    is_synced: bool = False

    @property
    def owner(self) -> str:
        """A static member keeps what it has when its process is another."""
        return self.instance or self.member_id


class GroupModel(RuleBasedStateMachine):
    clients = Bundle("clients")

    def __init__(self) -> None:
        super().__init__()
        self.bench = GroupBench(GroupConfig(initial_rebalance_delay_ms=100, max_size=5))
        self.committed: dict[int, int] = {}
        self.owners: dict[tuple[int, int], str] = {}
        """Generation and partition → who owns it."""
        self.gone: set[str] = set()
        """Member ids that were told that they are none."""
        self.requests: list[list[Any]] = []
        self.count = 0
        self.alive: list[FakeClient] = []

    # ---- clients

    @rule(target=clients, instance=st.sampled_from([None, None, "one", "two"]), version=st.sampled_from([3, 5, 9]))
    def start(self, instance: str | None, version: int) -> FakeClient:
        self.count += 1
        client = FakeClient(self.count, instance if version >= 5 else None, version)
        self.alive.append(client)
        return client

    @initialize(target=clients)
    def found(self) -> Any:
        """Most of what can happen happens to a group that is there."""
        clients = [self.start(instance, 9) for instance in (None, None, "one")]
        self.go_on(12, 100)
        assert self.bench.state is GroupState.STABLE
        return multiple(*clients)

    @rule(rounds=st.integers(1, 8), ms=st.sampled_from([0, 100, 1_000]))
    def go_on(self, rounds: int, ms: int) -> None:
        """Everybody does what is next, as in a group that is left alone."""
        for _ in range(rounds):
            self.bench.pass_time(ms)
            for client in self.alive:
                self.step(client)
        self.bench.log.failure = None

    def step(self, client: FakeClient) -> None:
        """The next thing that a client does: reads a reply, or sends a request."""
        if client.join is not None:
            self.read_join(client)
        elif client.sync is not None:
            self.read_sync(client)
        elif client.needs_join:
            client.join = self.sent(self.bench.join(client.member_id, instance=client.instance, version=client.version))
        elif client.generation >= 0 and not client.is_synced:
            self.send_sync(client)
        else:
            self.beat(client)

    @rule(client=clients)
    def join_out_of_turn(self, client: FakeClient) -> None:
        """A client that did not wait for the reply, or that changed its mind."""
        client.sync = None
        client.join = self.sent(self.bench.join(client.member_id, instance=client.instance, version=client.version))

    @rule(client=clients)
    def beat(self, client: FakeClient) -> None:
        error = self.bench.heartbeat(client.member_id, client.generation, instance=client.instance)
        self.check_allowed(client, error)
        if error is RebalanceInProgressError:
            client.needs_join = True
        elif error is not None:
            self.told(client, error)

    @rule(client=clients, partition=st.sampled_from(PARTITIONS), offset=st.integers(0, 1000))
    def commit(self, client: FakeClient, partition: int, offset: int) -> None:
        reply = self.bench.commit(
            offset, client.member_id, client.generation, instance=client.instance, partition=partition
        )
        if reply == 0:
            self.check_allowed(client, None)
            self.committed[partition] = offset
        elif isinstance(reply, type) and reply is not NotEnoughReplicasError:
            self.check_allowed(client, reply)
            self.told(client, reply)

    @rule(client=consumes(clients))
    def leave(self, client: FakeClient) -> None:
        self.forget(client)
        if GROUP in self.bench.shard.groups and client.member_id:
            replies = self.bench.leave((client.member_id, client.instance))
            if not isinstance(replies, list) or replies[0].error_code == 0:  # it is out, also if that was not written
                self.gone.add(client.member_id)

    @rule(client=consumes(clients))
    def crash(self, client: FakeClient) -> None:
        """Nothing is heard of it again."""
        self.forget(client)

    @rule(client=clients)
    def hang_or_wake(self, client: FakeClient) -> None:
        """It does nothing for a while, and then goes on with what it remembers."""
        if client in self.alive:
            self.alive.remove(client)
        else:
            self.alive.append(client)

    def forget(self, client: FakeClient) -> None:
        if client in self.alive:
            self.alive.remove(client)

    # ---- what clients make of replies

    def sent(self, replies: list[Any]) -> list[Any]:
        self.requests.append(replies)
        return replies

    def read_join(self, client: FakeClient) -> None:
        if not client.join:
            return
        (reply,), client.join = client.join, None
        error = for_code(reply.error_code) if reply.error_code else None
        if error is MemberIdRequiredError:
            client.member_id = reply.member_id
        elif error is not None:
            self.told(client, error)
        else:
            assert reply.member_id not in self.gone
            client.member_id, client.generation = reply.member_id, reply.generation_id
            client.leads = reply.leader == reply.member_id and not reply.skip_assignment
            client.others = [member.member_id for member in reply.members]
            client.owned = frozenset()
            client.needs_join = client.is_synced = False

    def send_sync(self, client: FakeClient) -> None:
        shares: dict[str, bytes] = {}
        if client.leads and client.others:
            for partition in PARTITIONS:
                member = client.others[partition % len(client.others)]
                shares[member] = shares.get(member, b"") + bytes([partition])
        client.sync = self.sent(self.bench.sync(client.member_id, client.generation, shares, instance=client.instance))

    def read_sync(self, client: FakeClient) -> None:
        if not client.sync:
            return
        (reply,), client.sync = client.sync, None
        if reply.error_code:
            self.told(client, for_code(reply.error_code))
            client.needs_join = True
            return
        client.owned = frozenset(reply.assignment)
        client.is_synced = True
        for partition in client.owned:
            owner = self.owners.setdefault((client.generation, partition), client.owner)
            assert owner == client.owner, f"{partition} of generation {client.generation} is {owner}'s"

    def told(self, client: FakeClient, error: type[Exception]) -> None:
        client.needs_join = True
        client.owned = frozenset()
        if error in LOST:
            if client.member_id and client.member_id not in self.members():
                self.gone.add(client.member_id)
            client.member_id, client.generation = "", -1
        elif error is IllegalGenerationError:
            client.generation = -1

    def check_allowed(self, client: FakeClient, error: type[Exception] | None) -> None:
        if client.member_id in self.gone:
            assert error in LOST or error in (IllegalGenerationError, CoordinatorNotAvailableError), client

        if error is None and client.instance is not None and client.generation >= 0:
            assert self.bench.group.static_members[client.instance] == client.member_id

    def members(self) -> set[str]:
        group = self.bench.shard.groups.get(GROUP)
        return {*group.members, *group.pending_joins} if group is not None else set()

    # ---- the world

    @rule(ms=st.sampled_from([1, 100, 1_000, 1_000, 5_000, 5_000, 10_000]))
    def pass_time(self, ms: int) -> None:
        self.bench.pass_time(ms)

    @rule()
    def writes_fail_for_a_while(self) -> None:
        self.bench.log.failure = NotEnoughReplicasError("too few")

    @rule()
    def reload(self) -> None:
        group = self.bench.shard.groups.get(GROUP)
        before = None
        if group is not None and group.state is GroupState.STABLE:
            before = (group.generation_id, {each.member_id: each.assignment for each in group.members.values()})
        self.bench.reload()
        group = self.bench.shard.groups.get(GROUP)
        if before is not None:
            assert group is not None
            assert before == (
                group.generation_id,
                {each.member_id: each.assignment for each in group.members.values()},
            )
        # What was not stored may be true again: a member that was dropped during a rebalance that is forgotten.
        self.gone -= self.members()

    # ---- always

    @invariant()
    def offsets_are_what_was_committed(self) -> None:
        for partition, offset in self.committed.items():
            assert self.bench.committed(partition=partition) == offset

    @invariant()
    def answered_once(self) -> None:
        assert all(len(replies) <= 1 for replies in self.requests)
        self.requests = [replies for replies in self.requests if not replies]

    @invariant()
    def group_is_sound(self) -> None:
        group = self.bench.shard.groups.get(GROUP)
        if group is None:
            return
        members = group.members
        assert all(member.member_id == member_id for member_id, member in members.items())
        assert group.static_members == {
            member.group_instance_id: member.member_id for member in members.values() if member.group_instance_id
        }
        assert not members or group.leader_id in members
        assert not group.pending_joins & members.keys()
        assert bool(members) or group.state in (GroupState.EMPTY, GroupState.PREPARING_REBALANCE)
        if group.state is GroupState.EMPTY:
            assert not members
        if group.state is not GroupState.PREPARING_REBALANCE:
            assert not any(member.join_reply for member in members.values())
        if group.state is not GroupState.COMPLETING_REBALANCE:
            assert not any(member.sync_reply for member in members.values())
        if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            assert len(members) <= self.bench.config.max_size
            assert group.pending_syncs <= members.keys()

    def teardown(self) -> None:
        self.bench.log.failure = None
        for _ in range(10):
            self.bench.pass_time(300_000)
        self.answered_once()
        assert self.requests == []
        group = self.bench.shard.groups.get(GROUP)
        assert group is None or group.state is GroupState.EMPTY


TestGroupModel = GroupModel.TestCase
TestGroupModel.settings = settings(TestGroupModel.settings, stateful_step_count=60, deadline=None)
