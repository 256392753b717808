"""An external model of a group, built from the clients' responses, the clock and the log.

It decides whether a request of a member may succeed. It must fail if

- another process has joined with its instance id, or the member left, or a response said that it is not a member,
- the leader of a later generation got a member list without it,
- a member got a later generation than its own,
- its session has timed out.

After a reload only the log counts, and its members start new sessions.
"""

from dataclasses import dataclass, field

from headrace.coordinator.group.records import GroupMetadataKey, GroupMetadataValue, decode_group_value, decode_key
from headrace.records import RecordBatch, decode_rows

SLACK_MS = 10
"""Longer than the tick of a timer."""


@dataclass
class Written:
    """A commit in the log."""

    end: int
    """The log end offset after it."""
    offset: int
    is_told: bool = False
    """True if a client got a successful response."""


@dataclass
class GroupOracle:
    group_id: str
    session_ms: int
    life: int = 0
    """How often the group was deleted; each time generations start again."""
    generation: int = 0
    told: set[str] = field(default_factory=set)
    """Members that know this generation."""
    known: set[str] = field(default_factory=set)
    """Members that know any generation."""
    dead: set[str] = field(default_factory=set)
    leaving: set[str] = field(default_factory=set)
    """Members that have left, although no response says so yet."""
    handed_ms: dict[str, int] = field(default_factory=dict)
    """Assigned member ids, and when they were assigned."""
    expected: set[str] = field(default_factory=set)
    """Members in the leader's list that do not know this generation yet."""
    instances: dict[str, str | None] = field(default_factory=dict)
    """By member id."""
    heard_ms: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    """Pending requests of a member."""
    owners: dict[tuple[int, int, int], str] = field(default_factory=dict)
    """By group incarnation, generation and partition."""
    shares: dict[tuple[int, int, str], bytes] = field(default_factory=dict)
    """By group incarnation, generation and owner."""
    written: dict[int, list[Written]] = field(default_factory=dict)
    pending: dict[int, Written] = field(default_factory=dict)
    """The offsets of the open transaction."""

    # ---- members

    def may_succeed(self, member_id: str, instance: str | None, generation: int, now_ms: int) -> bool:
        return (
            member_id in self.known
            and member_id not in self.dead
            and instance in (None, self.instances.get(member_id))
            and generation == self.generation
            and not self.has_timed_out(member_id, now_ms)
        )

    def has_timed_out(self, member_id: str, now_ms: int) -> bool:
        if self.waiting.get(member_id):
            return False
        return now_ms - self.heard_ms.get(member_id, 0) > self.session_ms + SLACK_MS

    def record_generation(self, member_id: str, instance: str | None, generation: int, now_ms: int) -> None:
        assert member_id not in self.dead, f"{member_id} joined, which is no member any more"
        assert generation >= self.generation, f"generation {generation} after {self.generation}"
        if generation > self.generation:
            self.generation = generation
            self.told.clear()
        self.told.add(member_id)
        self.known.add(member_id)
        self.instances[member_id] = instance
        self.heard_ms[member_id] = now_ms

    def record_members(self, member_ids: set[str], now_ms: int) -> None:
        """A leader's response has all members of its generation."""
        self.expected = set(member_ids)
        self.dead |= self.known - member_ids
        for member_id in member_ids:
            self.heard_ms[member_id] = now_ms

    def record_assignment(self, member_id: str, generation: int, partitions: bytes) -> None:
        """Identifies an owner: a restarted static member keeps its partitions."""
        assert member_id not in self.dead, f"{member_id} was given partitions, which is no member any more"
        assert generation == self.generation, f"a share of generation {generation} in {self.generation}"
        owner = self.instances[member_id] or member_id
        share = self.shares.setdefault((self.life, generation, owner), partitions)
        assert share == partitions, f"{owner} was given {share!r} in generation {generation}, and {partitions!r}"
        for partition in partitions:
            other = self.owners.setdefault((self.life, generation, partition), owner)
            assert owner == other, f"{partition} of generation {generation} is {other}'s and {owner}'s"

    def check_assignments(self) -> None:
        """The members of a generation have joined it; a static member may be absent."""
        for member_id in self.expected & self.known - self.dead:
            assert member_id in self.told or self.instances[member_id] is not None, f"{member_id} did not join again"

    # ---- offsets

    def committed(self, partition: int) -> int | None:
        entries = self.written.get(partition)
        return entries[-1].offset if entries else None

    def end_transaction(self, end: int, committed: bool) -> None:
        for partition, pending in self.pending.items():
            entries = self.written.setdefault(partition, [])
            if committed and (not entries or entries[-1].end < pending.end):
                entries.append(Written(end, pending.offset, is_told=True))
        self.pending.clear()

    def deleted(self) -> None:
        self.life += 1
        self.generation = 0
        self.dead |= self.known
        self.expected.clear()
        self.written.clear()
        self.pending.clear()

    # ---- reloads

    def reloaded(self, log_end: int, stored: GroupMetadataValue | None, now_ms: int) -> None:
        """Handles a reload: the log ends at `log_end`, and `stored` is its last record of the group."""
        for entries in self.written.values():
            while entries and entries[-1].end > log_end:
                assert not entries.pop().is_told, "a commit is lost that somebody was told of"
        for partition in [partition for partition, entry in self.pending.items() if entry.end > log_end]:
            assert not self.pending.pop(partition).is_told, "a commit is lost that somebody was told of"
        members = {} if stored is None else {each.member_id: each.group_instance_id for each in stored.members}
        self.generation = 0 if stored is None else stored.generation
        self.told = set(members)
        self.expected.clear()
        self.leaving.clear()
        self.handed_ms = dict.fromkeys(self.handed_ms, -self.session_ms * 2)  # lost with the reload
        self.known |= members.keys()
        self.instances |= members
        self.dead = self.known - members.keys()
        self.heard_ms |= dict.fromkeys(members, now_ms)


def stored_groups(batches: list[RecordBatch]) -> dict[str, GroupMetadataValue]:
    """Returns the last record of each group in the log."""
    found: dict[str, GroupMetadataValue] = {}
    for batch in batches:
        if batch.is_control:
            continue
        for record in decode_rows(batch.records()):
            key = decode_key(record.key or b"")
            if isinstance(key, GroupMetadataKey):
                found.pop(key.group, None)
                if record.value is not None:
                    found[key.group] = decode_group_value(record.value)
    return found
