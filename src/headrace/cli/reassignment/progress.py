"""Shows what a reassignment moves, before it starts and until it is done."""

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import click

from headrace.cli.common.output import print_table
from headrace.cli.common.progress import Progress
from headrace.cli.common.tool import sentence
from headrace.cli.reassignment.facts import Sizes, current_replicas, replica_sizes
from headrace.cli.reassignment.files import Assignment
from headrace.cli.reassignment.plan import Move
from headrace.common.clock import Clock
from headrace.common.errors import HeadraceError
from headrace.common.types import TopicPartition
from headrace.diagnosis.snapshot import in_bytes

if TYPE_CHECKING:
    from headrace.client.admin.admin import Admin

_POLL_SECONDS = 1.0
_METADATA_POLL_SECONDS = 0.1
_METADATA_SECONDS = 10.0
"""How long a broker may take to learn the replicas after the end of a reassignment."""


def bytes_to_copy(tp: TopicPartition, move: Move, sizes: Sizes) -> dict[int, int]:
    """Returns how many bytes each added replica has to copy."""
    size = max((sizes.get((tp, broker), 0) for broker in move.sources), default=0)
    return {broker: max(0, size - sizes.get((tp, broker), 0)) for broker in move.destinations}


def print_plan(
    before: Assignment, after: Assignment, moves: Mapping[TopicPartition, Move], sizes: Sizes | None
) -> None:
    """Prints the replicas, preferred leaders and bytes to copy of each broker."""
    added = sum(len(move.destinations) for move in moves.values())
    removed = sum(len(set(move.sources) - set(move.targets)) for move in moves.values())
    copied: Counter[int] = Counter()
    for tp, move in moves.items():
        copied.update(bytes_to_copy(tp, move, sizes or {}))
    size = "" if sizes is None else f", {in_bytes(copied.total())} to copy"
    click.echo(
        f"\nPlan: {_counted(len(moves), 'partition')}, {_counted(added, 'replica')} added, {removed} removed{size}"
    )
    counts = [Counter(broker for ids in one.values() for broker in ids) for one in (before, after)]
    leaders = [Counter(ids[0] for ids in one.values() if ids) for one in (before, after)]
    print_table(
        ("BROKER", "REPLICAS BEFORE", "AFTER", "PREFERRED LEADERS BEFORE", "AFTER", "TO COPY"),
        [
            (
                broker,
                *(count[broker] for count in counts),
                *(count[broker] for count in leaders),
                None if sizes is None else in_bytes(copied[broker]),
            )
            for broker in sorted(set().union(*counts))
        ],
    )
    click.echo()


def wait_until_done(admin: "Admin", moves: Mapping[TopicPartition, Move], sizes: Sizes | None, clock: Clock) -> None:
    """Returns when the reassignments are not in progress any more: they are complete, or were cancelled.

    Shows progress on a terminal. Elsewhere prints a line when partitions are done.
    """
    total = sum(sum(bytes_to_copy(tp, move, sizes or {}).values()) for tp, move in moves.items())
    unit, size = ("MB", 1_000_000) if total >= 100_000_000 else ("KB", 1_000)
    in_sizes = total >= size
    what, items = (unit, total // size) if in_sizes else ("partitions", len(moves))
    done = 0
    with Progress(what, items, clock) as progress:
        while True:
            try:
                ongoing = admin.list_partition_reassignments(list(moves))
                waiting = {tp: moves[tp] for tp in ongoing}
                current = replica_sizes(admin, waiting) if in_sizes and waiting else {}
            except HeadraceError as error:  # for example, the controller fails over
                progress.clear()
                click.echo(f"{sentence(error)}; retrying", err=True)
                clock.sleep(_POLL_SECONDS)
                continue
            if len(moves) - len(waiting) != done:
                done = len(moves) - len(waiting)
                if not progress.is_shown:
                    click.echo(f"{done} of {_counted(len(moves), 'partition')} done")
            if not waiting:
                break
            now_done = done
            if in_sizes:
                remaining = sum(sum(bytes_to_copy(tp, move, current).values()) for tp, move in waiting.items())
                now_done = (total - remaining) // size
            note = f"{done:,} of {_counted(len(moves), 'partition')} done" if in_sizes else ""
            progress.add(max(0, now_done - progress.done), partial(str, note))
            clock.sleep(_POLL_SECONDS)
    targets = {tp: move.targets for tp, move in moves.items()}
    deadline = clock.monotonic() + _METADATA_SECONDS
    while current_replicas(admin, targets) != targets and clock.monotonic() < deadline:
        clock.sleep(_METADATA_POLL_SECONDS)


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
