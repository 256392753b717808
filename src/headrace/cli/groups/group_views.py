"""Views of a consumer group: offsets and lag, members, or state.

Each view exists in three formats: the text of Kafka's tool, a table for a terminal, and JSON. `GroupLag` holds the data
of all views: committed offset, lag and member of each partition.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.common.output import print_table, styled
from headrace.common.types import TopicPartition

if TYPE_CHECKING:
    from headrace.client.admin.admin import Admin
    from headrace.client.admin.types import GroupDescription, MemberDescription


@dataclass(frozen=True)
class PartitionLag:
    """A group's committed offset and lag in one partition, and the member that reads it."""

    tp: TopicPartition
    committed: int | None
    """None if the group has no committed offset."""
    end: int | None
    leader_epoch: int | None
    member: "MemberDescription | None"

    @property
    def lag(self) -> int | None:
        return None if self.committed is None or self.end is None else self.end - self.committed


@dataclass(frozen=True)
class GroupLag:
    """A group's description and its lag in each partition."""

    group: "GroupDescription"
    partitions: tuple[PartitionLag, ...]

    @property
    def total(self) -> int:
        return sum(partition.lag or 0 for partition in self.partitions)


def read_lag(admin: "Admin", names: Sequence[str]) -> list[GroupLag]:
    """Reads the groups' offsets and lag. Lists the end offsets of all partitions in one call."""
    from headrace.client.admin.types import OffsetSpec

    if not names:
        return []
    groups = admin.describe_groups(names)
    committed = {name: group_offsets.offsets for name, group_offsets in admin.list_group_offsets(names).items()}
    readers = {
        name: {tp: member for member in group.members for tp in member.assignment} for name, group in groups.items()
    }
    all_partitions = {tp for name in names for tp in (*committed[name], *readers[name])}
    ends = (
        admin.list_partition_offsets(dict.fromkeys(all_partitions, OffsetSpec.LATEST), raise_errors=False)
        if all_partitions
        else {}
    )
    group_lags = []
    for name in names:
        partitions = []
        for tp in sorted({*committed[name], *readers[name]}):
            commit, end = committed[name].get(tp), ends[tp]
            epoch = (
                None
                if commit is None or commit.leader_epoch is None or commit.leader_epoch < 0
                else commit.leader_epoch
            )
            partitions.append(
                PartitionLag(
                    tp,
                    None if commit is None else commit.offset,
                    end.offset if end.error is None else None,
                    epoch,
                    readers[name].get(tp),
                )
            )
        group_lags.append(GroupLag(groups[name], tuple(partitions)))
    return group_lags


def warn_if_inactive(group: "GroupDescription") -> None:
    """Prints the same notice about a group without members as Kafka's tool."""
    if group.state == "Empty":
        click.echo(f"\nConsumer group '{group.group_id}' has no active members.", err=True)
    elif group.state in ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"):
        click.echo(f"\nWarning: Consumer group '{group.group_id}' is rebalancing.", err=True)
    elif group.state == "Dead":
        click.echo(f"\nConsumer group '{group.group_id}' does not exist.", err=True)


def columns(widths: Sequence[int], cells: Iterable[object]) -> str:
    """Joins cells with spaces, padded as in Kafka's tool. A width of 0 means no padding."""
    return " ".join(f"{_or_dash(cell):<{width}}" for width, cell in zip(widths, cells, strict=True))


def _or_dash(cell: object) -> str:
    return "-" if cell is None or cell == "" else str(cell)


def _width(texts: Iterable[object], least: int = 15) -> int:
    return max([least, *(len(_or_dash(text)) for text in texts)])


def print_offsets(group_lag: GroupLag, verbose: bool) -> None:
    rows = [
        (
            group_lag.group.group_id,
            partition.tp.topic,
            partition.tp.partition,
            *((partition.leader_epoch,) if verbose else ()),
            partition.committed,
            partition.end,
            partition.lag,
            *_member_cells(partition.member),
        )
        for partition in group_lag.partitions
    ]
    if not rows:
        return
    names = ["GROUP", "TOPIC", "PARTITION", *(["LEADER-EPOCH"] if verbose else [])]
    names += ["CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"]
    widths = [
        _width(row[0] for row in rows),
        _width(row[1] for row in rows),
        10,
        *([15] if verbose else []),
        15,
        15,
        15,
        _width(row[-3] for row in rows),
        _width(row[-2] for row in rows),
        0,
    ]
    click.echo("\n" + columns(widths, names))
    for row in rows:
        click.echo(columns(widths, row))


def _member_cells(member: "MemberDescription | None") -> tuple[str | None, str | None, str | None]:
    if member is None:
        return None, None, None
    return member.member_id, member.host, member.client_id


def print_members(group: "GroupDescription", verbose: bool) -> None:
    members = group.members
    has_instances = any(member.group_instance_id for member in members)
    names = [
        "GROUP",
        "CONSUMER-ID",
        *(["GROUP-INSTANCE-ID"] if has_instances else []),
        "HOST",
        "CLIENT-ID",
        "#PARTITIONS",
    ]
    widths = [
        _width([group.group_id] if members else []),
        _width(member.member_id for member in members),
        *([_width((member.group_instance_id for member in members), 17)] if has_instances else []),
        _width(member.host for member in members),
        _width(member.client_id for member in members),
        15,
    ]
    if verbose:
        names += ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
        widths += [15, _width((assignment_text(member.assignment) for member in members), 20), 15, 19]
    click.echo("\n" + columns(widths, names) + " ")
    for member in members:
        row: list[object] = [group.group_id, member.member_id]
        if has_instances:
            row.append(member.group_instance_id)
        row += [member.host, member.client_id, len(member.assignment)]
        if verbose:
            row += [None, assignment_text(member.assignment), None, None]
        click.echo(columns(widths, row) + " ")


def assignment_text(partitions: Iterable[TopicPartition]) -> str:
    """Formats an assignment as Kafka's tool does: `events:0,1,logs:4`."""
    topics: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        topics.setdefault(tp.topic, []).append(tp.partition)
    return ",".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in topics.items())


def coordinator_text(group: "GroupDescription") -> str:
    node = group.coordinator
    return "-" if node is None else f"{node.host}:{node.port}  ({node.id})"


def print_state(group: "GroupDescription") -> None:
    widths = [_width([group.group_id]), _width([coordinator_text(group)], 25), 20, 20, 0]
    click.echo("\n" + columns(widths, ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"]))
    click.echo(
        columns(widths, [group.group_id, coordinator_text(group), group.protocol, group.state, len(group.members)])
    )


_STATE_COLORS = {"Stable": "green", "Empty": "yellow", "Dead": "red"}


def title_lines(group_lag: GroupLag, rates: "Rates | None" = None) -> list[str]:
    """Returns a summary for a terminal: name, state, strategy, members and total lag."""
    group = group_lag.group
    state = styled(group.state, fg=_STATE_COLORS.get(group.state, "magenta"))
    strategy = f", {group.protocol}" if group.protocol else ""
    lag = styled(f"lag {group_lag.total:,}", bold=True, fg="red" if group_lag.total else "green")
    lines = [
        f"{styled(group.group_id, bold=True, fg='cyan')}  {state}{strategy}, {len(group.members)} members, "
        f"coordinator {coordinator_text(group)}, {lag}"
    ]
    if rates is not None:
        lines.append(rates.summary(group_lag.total))
    return lines


def print_offsets_for_people(group_lag: GroupLag, rates: "Rates | None" = None) -> None:
    for line in title_lines(group_lag, rates):
        click.echo(line)
    names = ["TOPIC", "PARTITION", "COMMITTED", "END", "LAG"]
    if rates is not None:
        names += ["READ/S", "WRITTEN/S"]
    names += ["MEMBER", "HOST"]
    rows: list[list[object]] = []
    for partition in group_lag.partitions:
        row: list[object] = [
            partition.tp.topic,
            partition.tp.partition,
            partition.committed,
            partition.end,
            partition.lag,
        ]
        if rates is not None:
            row += rates.of(partition.tp)
        row += [
            partition.member.member_id if partition.member else None,
            partition.member.host if partition.member else None,
        ]
        rows.append(row)
    if rows:
        print_table(
            names, rows, lambda column, cell: {"fg": "red"} if column == "LAG" and cell not in ("0", "-") else None
        )


def print_members_for_people(group_lag: GroupLag, verbose: bool) -> None:
    for line in title_lines(group_lag):
        click.echo(line)
    names = ["MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS", *(["ASSIGNMENT"] if verbose else [])]
    rows = [
        [
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.host,
            len(member.assignment),
            *([assignment_text(member.assignment)] if verbose else []),
        ]
        for member in group_lag.group.members
    ]
    if rows:
        print_table(names, rows)


class Rates:
    """Consume and produce rates, computed from two observations of a group."""

    def __init__(self, earlier: GroupLag, later: GroupLag, seconds: float):
        self._seconds = max(seconds, 1e-9)
        previous = {partition.tp: partition for partition in earlier.partitions}
        self._rates: dict[TopicPartition, tuple[float | None, float | None]] = {}
        for partition in later.partitions:
            before = previous.get(partition.tp)
            self._rates[partition.tp] = (
                self._rate(before.committed if before else None, partition.committed),
                self._rate(before.end if before else None, partition.end),
            )

    def _rate(self, earlier: int | None, later: int | None) -> float | None:
        return None if earlier is None or later is None else (later - earlier) / self._seconds

    def of(self, tp: TopicPartition) -> list[str | None]:
        return [None if rate is None else f"{rate:,.0f}" for rate in self._rates[tp]]

    @property
    def read(self) -> float:
        return sum(rate or 0.0 for rate, _ in self._rates.values())

    @property
    def written(self) -> float:
        return sum(rate or 0.0 for _, rate in self._rates.values())

    def summary(self, lag: int) -> str:
        """Describes the rates and predicts when the lag will be zero."""
        from headrace.cli.common.progress import in_time

        text = f"reads {self.read:,.0f}/s, written {self.written:,.0f}/s"
        gain = self.read - self.written
        if lag == 0:
            return f"{text}: no lag"
        if gain > 0:
            return f"{text}: lag will be zero in {in_time(lag / gain)}"
        return f"{text}: lag is {'growing' if gain < 0 else 'constant'}"


def as_json(group_lag: GroupLag, rates: Rates | None = None) -> dict[str, Any]:
    group = group_lag.group
    document: dict[str, Any] = {
        "group": group.group_id,
        "state": group.state,
        "assignment_strategy": group.protocol or None,
        "coordinator": group.coordinator.id if group.coordinator else None,
        "total_lag": group_lag.total,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "assignment": _by_topic(member.assignment),
            }
            for member in group.members
        ],
        "partitions": [
            {
                "topic": partition.tp.topic,
                "partition": partition.tp.partition,
                "committed": partition.committed,
                "leader_epoch": partition.leader_epoch,
                "end": partition.end,
                "lag": partition.lag,
                "member_id": partition.member.member_id if partition.member else None,
            }
            for partition in group_lag.partitions
        ],
    }
    if rates is not None:
        document["read_per_second"], document["written_per_second"] = round(rates.read, 1), round(rates.written, 1)
    return document


def _by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        topics.setdefault(tp.topic, []).append(tp.partition)
    return topics
