"""A group with a leader, a follower and a static member, in each of its states."""

from enum import Enum

from tests.support.coordinator.groups import GROUP, GroupBench, subscription

from headrace.common.errors import CoordinatorNotAvailableError
from headrace.coordinator.group.classic_group import GroupState
from headrace.coordinator.group.config import GroupConfig

INSTANCE = "i"
DELAY_MS = 3_000
PROTOCOLS = (("range", subscription("t")), ("sticky", subscription("t")))
CHANGED = (("range", subscription("t", "v")), ("sticky", subscription("t", "v")))
OTHER_VOTE = (("sticky", subscription("t")),)


class Situation(Enum):
    """The group states, and two more situations: no group, and the delayed initial rebalance."""

    ABSENT = "absent"
    EMPTY = "Empty"
    INITIAL = "initial"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Scene(GroupBench):
    """A group in a situation. The member ids are kept after the members have left.

    In INITIAL all three members have joined, in PREPARING only the leader; in COMPLETING no member has sent SyncGroup.
    `fenced` is an earlier id of the static member. Offsets of `t` and `u` are committed.
    """

    def __init__(self, situation: Situation):
        super().__init__(GroupConfig(initial_rebalance_delay_ms=DELAY_MS, max_size=10))
        self.leader, self.follower, self.static, self.fenced = "L", "F", "S", "O"
        self.generation = 1
        if situation is Situation.ABSENT:
            return
        self._make_stable()
        if situation is Situation.EMPTY:
            self._leave_all()
        elif situation is Situation.INITIAL:
            self._leave_all()
            self._join_all()
        elif situation is Situation.PREPARING:
            self.rejoin(self.leader)
        elif situation is Situation.COMPLETING:
            self._rejoin_all()
        elif situation is Situation.DEAD:
            self.shard.members.remove_group(self.group, CoordinatorNotAvailableError)
        self.generation = self.group.generation_id
        expected = GroupState.PREPARING_REBALANCE if situation is Situation.INITIAL else GroupState(situation.value)
        assert self.state is expected

    @property
    def roles(self) -> str:
        """Returns the first letters of the members; a dot for each non-member."""
        names = {self.leader: "L", self.follower: "F", self.static: "S"}
        group = self.shard.groups.get(GROUP)
        return "".join(sorted(names.get(each, ".") for each in group.members)) if group is not None else ""

    def rejoin(self, member_id: str) -> list:  # type: ignore[type-arg]
        return self.join(member_id, protocols=PROTOCOLS)

    def beat_all(self) -> None:
        for member_id in (self.leader, self.follower, self.static):
            self.heartbeat(member_id, self.shard.groups[GROUP].generation_id if GROUP in self.shard.groups else -1)

    def pass_time_beating(self, ms: int) -> None:
        for _ in range(ms // 1_000):
            self.beat_all()
            self.pass_time(1_000)

    # ---- reaching a situation

    def _make_stable(self) -> None:
        self._join_all()
        self.pass_time(DELAY_MS * 2)  # others joined after the first
        self._sync_all()
        assert self.state is GroupState.STABLE
        for offset, topic in ((5, "t"), (6, "u")):
            assert self.commit(offset, self.leader, self.group.generation_id, topic=topic) == 0

    def _join_all(self) -> None:
        before = set(self.shard.groups[GROUP].members) if GROUP in self.shard.groups else set()
        self.join(protocols=PROTOCOLS), self.join(protocols=PROTOCOLS)
        self.leader, self.follower = (each for each in self.group.members if each not in before)
        self.join(instance=INSTANCE, protocols=PROTOCOLS)
        self.fenced = self.group.static_members[INSTANCE]
        self.join(instance=INSTANCE, protocols=PROTOCOLS)
        self.static = self.group.static_members[INSTANCE]

    def _rejoin_all(self) -> None:
        for member_id in (self.leader, self.follower, self.static):
            self.rejoin(member_id)

    def _sync_all(self) -> None:
        generation = self.group.generation_id
        self.sync(self.leader, generation, {self.leader: b"l", self.follower: b"f", self.static: b"s"})
        self.sync(self.follower, generation), self.sync(self.static, generation)

    def _leave_all(self) -> None:
        self.leave(self.leader, self.follower, ("", INSTANCE))
