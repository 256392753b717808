"""`headrace consumer-groups`: list, describe, watch, reset and delete groups, as `kafka-consumer-groups.sh` does.

Unlike Kafka's tool, it exits with 1 if a group does not exist or cannot be deleted.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.common.connection import Connection, optional_connection_options
from headrace.cli.common.names import complete_groups, complete_topics
from headrace.cli.common.output import is_terminal, json_option, print_json, print_table
from headrace.cli.common.progress import in_parts
from headrace.cli.common.tool import Failure, Tool, exactly_one, only_with, sentence
from headrace.cli.groups import group_views
from headrace.common.clock import Clock, SystemClock
from headrace.common.errors import HeadraceError
from headrace.common.types import TopicPartition

if TYPE_CHECKING:
    from headrace.cli.groups.group_resets import Offsets
    from headrace.client.admin.admin import Admin

_RESET_FLAGS = {
    "to_earliest": "--to-earliest",
    "to_latest": "--to-latest",
    "to_current": "--to-current",
    "to_offset": "--to-offset",
    "to_datetime": "--to-datetime",
    "by_duration": "--by-duration",
    "shift_by": "--shift-by",
    "from_file": "--from-file",
}
_TYPES = ("classic", "consumer")
_AT_ONCE = 500


@click.command("consumer-groups", cls=Tool)
@optional_connection_options
@click.option("--list", "list_", is_flag=True, help="List groups.")
@click.option("--describe", is_flag=True, help="Show offsets and lag, or members (--members) or the state (--state).")
@click.option("--delete", is_flag=True, help="Delete groups without members.")
@click.option("--reset-offsets", is_flag=True, help="Reset the offsets of a group without members.")
@click.option("--delete-offsets", is_flag=True, help="Delete a group's offsets for topics.")
@click.option("--validate-regex", metavar="REGEX", help="Check that a regular expression is valid.")
@click.option(
    "--group",
    "groups",
    shell_complete=complete_groups,
    metavar="GROUP",
    multiple=True,
    help="A group; can be repeated.",
)
@click.option("--all-groups", is_flag=True, help="All groups.")
@click.option(
    "--topic",
    "topics",
    shell_complete=complete_topics,
    metavar="NAME[:N,...]",
    multiple=True,
    help="A topic, or some of its partitions.",
)
@click.option("--all-topics", is_flag=True, help="All topics for which the group has offsets.")
@click.option("--offsets", is_flag=True, help="Describe offsets (the default).")
@click.option("--members", is_flag=True, help="Describe members.")
@click.option(
    "--state",
    is_flag=False,
    flag_value="",
    metavar="[STATE,...]",
    help="Describe the state; with --list, filter by state.",
)
@click.option(
    "--type", "type_", is_flag=False, flag_value="", metavar="[TYPE,...]", help="List the type; filter by type."
)
@click.option("--verbose", is_flag=True, help="Also show leader epochs and assignments.")
@click.option(
    "--watch",
    is_flag=False,
    flag_value=2.0,
    type=click.FloatRange(min=0.1),
    metavar="[SECONDS]",
    help="Repeat every 2 seconds, or as given, and show rates; stop with Ctrl-C.",
)
@click.option("--to-earliest", is_flag=True, help="Reset to the earliest offset.")
@click.option("--to-latest", is_flag=True, help="Reset to the latest offset.")
@click.option(
    "--to-current", is_flag=True, help="Reset to the committed offset, or the latest offset if none is committed."
)
@click.option("--to-offset", type=int, metavar="OFFSET", help="Reset to an offset.")
@click.option(
    "--to-datetime", metavar="TIME", help="Reset to the first record at or after a time: 2030-01-31T12:00:00.000."
)
@click.option(
    "--by-duration", metavar="DURATION", help="Reset to the first record of the last hour (PT1H) or week (P7D)."
)
@click.option("--shift-by", type=int, metavar="N", help="Shift offsets by N, forward or (negative) backward.")
@click.option("--from-file", metavar="FILE", help="Reset to the offsets of a CSV file, as written by --export.")
@click.option("--dry-run", is_flag=True, help="Show the new offsets without changing anything.")
@click.option("--execute", is_flag=True, help="Execute the reset.")
@click.option("--export", is_flag=True, help="Print the new offsets as CSV.")
@click.option("--timeout", type=click.IntRange(min=1), metavar="MS", default=30_000, show_default=True, help="Timeout.")
@json_option
def consumer_groups(
    connection: Connection,
    list_: bool,
    describe: bool,
    delete: bool,
    reset_offsets: bool,
    delete_offsets: bool,
    validate_regex: str | None,
    groups: tuple[str, ...],
    all_groups: bool,
    topics: tuple[str, ...],
    all_topics: bool,
    offsets: bool,
    members: bool,
    state: str | None,
    type_: str | None,
    verbose: bool,
    watch: float | None,
    dry_run: bool,
    execute: bool,
    export: bool,
    timeout: int,
    as_json: bool,
    **resets: Any,
) -> int:
    """List, describe, watch, reset and delete consumer groups."""
    action = exactly_one(
        {
            "--list": list_,
            "--describe": describe,
            "--delete": delete,
            "--reset-offsets": reset_offsets,
            "--delete-offsets": delete_offsets,
            "--validate-regex": validate_regex is not None,
        },
        "action",
    )
    reset_flags = [
        flag for name, flag in _RESET_FLAGS.items() if resets[name] is not None and resets[name] is not False
    ]
    for flag, is_set, where in (
        ("--offsets", offsets, ("--describe",)),
        ("--members", members, ("--describe",)),
        ("--verbose", verbose, ("--describe",)),
        ("--watch", watch is not None, ("--describe",)),
        ("--state", state is not None, ("--describe", "--list")),
        ("--type", type_ is not None, ("--list",)),
        ("--dry-run", dry_run, ("--reset-offsets",)),
        ("--execute", execute, ("--reset-offsets",)),
        ("--export", export, ("--reset-offsets",)),
        ("--all-topics", all_topics, ("--reset-offsets",)),
        ("--topic", bool(topics), ("--reset-offsets", "--delete-offsets")),
        *((flag, True, ("--reset-offsets",)) for flag in reset_flags),
    ):
        only_with(flag, is_set, action in where, " or ".join(where))
    if action not in ("--list", "--validate-regex") and bool(groups) == all_groups:
        raise click.UsageError(f"{action} needs either --group or --all-groups")
    if action == "--validate-regex":
        assert validate_regex is not None
        return _validate(validate_regex)
    if action == "--list":
        with connection.admin(timeout) as admin:
            _list(admin, state, type_, as_json)
        return 0
    if action == "--describe":
        if sum((offsets, members, state is not None)) > 1:
            raise click.UsageError("Expected at most one of --offsets, --members and --state")
        if watch is not None and (members or state is not None):
            raise click.UsageError("--watch cannot be combined with --members or --state")
        view = "members" if members else "state" if state is not None else "offsets"
        with connection.admin(timeout) as admin:
            group_ids = _selected_groups(admin, groups, all_groups)
            if watch is None:
                _describe(admin, group_ids, view, verbose, as_json)
            else:
                Watch(admin, lambda: _selected_groups(admin, groups, all_groups), watch, as_json).run()
        return 0
    if action == "--delete":
        with connection.admin(timeout) as admin:
            return _delete(admin, _selected_groups(admin, groups, all_groups), as_json)
    if action == "--delete-offsets":
        if len(groups) != 1 or not topics:
            raise click.UsageError("--delete-offsets needs exactly one --group and at least one --topic")
        with connection.admin(timeout) as admin:
            return _delete_offsets(admin, groups[0], topics)
    if len(reset_flags) != 1:
        raise click.UsageError(f"--reset-offsets needs exactly one of {', '.join(_RESET_FLAGS.values())}")
    if reset_flags[0] != "--from-file" and bool(topics) == all_topics:
        raise click.UsageError("--reset-offsets needs either --topic or --all-topics")
    if dry_run and execute:
        raise click.UsageError("Expected either --dry-run or --execute, not both")
    if not dry_run and not execute and not export:
        click.echo("Dry run: pass --execute to change the offsets.", err=True)
    value = next(resets[name] for name, flag in _RESET_FLAGS.items() if flag == reset_flags[0])
    with connection.admin(timeout) as admin:
        return _reset(
            admin, _selected_groups(admin, groups, all_groups), reset_flags[0], value, topics, execute, export, as_json
        )


def _validate(text: str) -> int:
    try:
        re.compile(text)
    except re.error as error:
        raise Failure(f"{text!r} is not a regular expression: {error}") from None
    click.echo(f"The regular expression `{text}` is valid.")
    return 0


def _selected_groups(admin: "Admin", groups: tuple[str, ...], all_groups: bool) -> list[str]:
    if all_groups:
        return sorted(group.group_id for group in admin.list_groups() if group.protocol_type in ("consumer", ""))
    return list(dict.fromkeys(groups))


def _list(admin: "Admin", state: str | None, type_: str | None, as_json: bool) -> None:
    states = [_state_name(part) for part in (state or "").split(",") if part.strip()]
    types = [part.strip().lower() for part in (type_ or "").split(",") if part.strip()]
    wrong = sorted(set(types) - set(_TYPES))
    if wrong:
        raise click.UsageError(f"--type {wrong[0]!r}: expected {', '.join(_TYPES)}")
    groups = admin.list_groups(states_filter=states or None, types_filter=types or None)
    groups = sorted(
        (group for group in groups if group.protocol_type in ("consumer", "")), key=lambda group: group.group_id
    )
    if as_json:
        print_json([{"group": group.group_id, "state": group.state, "type": group.type} for group in groups])
    elif state is None and type_ is None:
        for group in groups:
            click.echo(group.group_id)
    else:
        extra = [("TYPE", [group.type.capitalize() for group in groups])] if type_ is not None else []
        extra += [("STATE", [group.state for group in groups])] if state is not None else []
        if is_terminal():
            names = ["GROUP", *(name for name, _ in extra)]
            print_table(
                names, [[group.group_id, *(cells[index] for _, cells in extra)] for index, group in enumerate(groups)]
            )
            return
        width = max([25, *(len(group.group_id) for group in groups)])
        for name, *cells in zip(
            ["GROUP", *(group.group_id for group in groups)], *([head, *cells] for head, cells in extra), strict=True
        ):
            click.echo(" ".join([f"{name:<{width}}", *(f"{cell:<20}" for cell in cells)]))


def _state_name(text: str) -> str:
    """Returns a state's name as brokers write it. The case of the text does not matter."""
    names = (
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
        "Empty",
        "Dead",
        "Assigning",
        "Reconciling",
        "NotReady",
    )
    for name in names:
        if name.lower() == text.strip().lower():
            return name
    raise click.UsageError(f"--state {text.strip()!r}: expected {', '.join(names)}")


def _describe(admin: "Admin", names: list[str], view: str, verbose: bool, as_json: bool) -> None:
    group_lags = group_views.read_lag(admin, names)
    if as_json:
        print_json([group_views.as_json(group_lag) for group_lag in group_lags])
        return
    for number, group_lag in enumerate(group_lags):
        if is_terminal():
            if number:
                click.echo()
            if view == "offsets":
                group_views.print_offsets_for_people(group_lag)
            elif view == "members":
                group_views.print_members_for_people(group_lag, verbose)
            else:
                for line in group_views.title_lines(group_lag):
                    click.echo(line)
            continue
        group_views.warn_if_inactive(group_lag.group)
        if view == "offsets":
            group_views.print_offsets(group_lag, verbose)
        elif view == "members":
            group_views.print_members(group_lag.group, verbose)
        else:
            group_views.print_state(group_lag.group)


class Watch:
    """Describes groups periodically."""

    def __init__(
        self,
        admin: "Admin",
        names: Callable[[], list[str]],
        seconds: float,
        as_json: bool,
        clock: Clock | None = None,
    ):
        self._admin, self._names = admin, names
        self._seconds, self._as_json = seconds, as_json
        self._clock = clock or SystemClock()
        self._previous: dict[str, tuple[float, group_views.GroupLag]] = {}

    def run(self) -> None:
        self.once()
        while True:
            self._clock.sleep(self._seconds)
            try:
                self.once()
            except HeadraceError as error:  # for example, a broker restarts or a group was deleted
                click.echo(f"{sentence(error)}; retrying", err=True)

    def once(self) -> None:
        group_lags = group_views.read_lag(self._admin, self._names())
        now = self._clock.monotonic()
        rates = {
            group_lag.group.group_id: group_views.Rates(
                self._previous[group_lag.group.group_id][1], group_lag, now - then
            )
            for group_lag in group_lags
            for then, _ in [self._previous.get(group_lag.group.group_id, (None, None))]
            if then is not None
        }
        self._previous = {group_lag.group.group_id: (now, group_lag) for group_lag in group_lags}
        if self._as_json:
            for group_lag in group_lags:
                click.echo(_json_line(group_views.as_json(group_lag, rates.get(group_lag.group.group_id))))
            return
        if is_terminal():
            click.echo("\x1b[H\x1b[2J", nl=False)
        for group_lag in group_lags:
            group_views.print_offsets_for_people(group_lag, rates.get(group_lag.group.group_id))
            click.echo()


def _json_line(document: dict[str, Any]) -> str:
    import json

    return json.dumps(document)


def _delete(admin: "Admin", names: list[str], as_json: bool) -> int:
    results: dict[str, Any] = {}
    for part in in_parts("groups", names, _AT_ONCE):
        results.update(admin.delete_groups(part, raise_errors=False))
    failed = {name: result.error for name, result in results.items() if result.error is not None}
    deleted = [name for name in names if name not in failed]
    if as_json:
        print_json([{"group": name, "error": str(failed[name]) if name in failed else None} for name in names])
        return 1 if failed else 0
    if deleted:
        quoted = ", ".join(f"'{name}'" for name in deleted)
        click.echo(f"Deletion of requested consumer groups ({quoted}) was successful.")
    if failed:
        raise Failure("; ".join(f"Group '{name}' could not be deleted: {error}" for name, error in failed.items()))
    return 0


def _delete_offsets(admin: "Admin", group: str, topics: tuple[str, ...]) -> int:
    from headrace.cli.groups.group_resets import parse_topics, partitions_of

    partitions = partitions_of(admin, parse_topics(topics))
    results = admin.delete_group_offsets(group, partitions, raise_errors=False)
    failed = [tp for tp in partitions if results[tp].error is not None]
    if not failed:
        click.echo(f"Request succeeded for deleting offsets from group {group}.")
    width = max([15, *(len(tp.topic) for tp in partitions)])
    click.echo("\n" + group_views.columns([width, 10, 15], ["TOPIC", "PARTITION", "STATUS"]))
    for tp in partitions:
        error = results[tp].error
        status = "Successful" if error is None else f"Error: {error}"
        click.echo(group_views.columns([width, 10, 15], [tp.topic, tp.partition, status]))
    return 1 if failed else 0


def _reset(
    admin: "Admin",
    names: list[str],
    reset_flag: str,
    value: Any,
    topics: tuple[str, ...],
    execute: bool,
    export: bool,
    as_json: bool,
) -> int:
    from headrace.cli.groups.group_resets import (
        Reset,
        parse_datetime,
        parse_duration,
        parse_topics,
        partitions_of,
        read_plan,
    )

    if reset_flag == "--to-datetime":
        value = parse_datetime(value)
    elif reset_flag == "--by-duration":
        value = max(0, SystemClock().time_ms() - round(parse_duration(value).total_seconds() * 1000))
    requested_topics, path = parse_topics(topics), value
    from_file = read_plan(value, names) if reset_flag == "--from-file" else {}
    described = admin.describe_groups(names, raise_errors=False)
    active = [
        name for name in names if described[name].error is None and described[name].state not in ("Empty", "Dead")
    ]
    if active:
        raise Failure(
            f"Assignments can only be reset if the group '{active[0]}' is inactive, but the current state is "
            f"{described[active[0]].state}"
        )
    reset = Reset(admin, reset_flag, value)
    plans: dict[str, Offsets] = {}
    for name in names:
        if reset_flag == "--from-file":
            if name in from_file:
                plans[name] = reset.within(from_file[name])
            else:
                click.echo(f"{path} has no row for group '{name}'; its offsets are unchanged", err=True)
            continue
        committed = {} if requested_topics else admin.list_group_offsets([name])[name].offsets
        plans[name] = reset.plan(
            name, partitions_of(admin, requested_topics) if requested_topics else sorted(committed)
        )
    completed: dict[str, Offsets] = {}
    try:
        for name, plan in plans.items():
            if execute and plan:
                admin.alter_group_offsets(name, plan)
            completed[name] = plan
    finally:  # report completed changes even if a later one fails
        if completed or not plans:
            _print_plans(completed, export, as_json, len(plans) > 1)
    return 0 if len(plans) == len(names) else 1


def _print_plans(plans: "dict[str, Offsets]", export: bool, as_json: bool, names_groups: bool) -> None:
    rows: list[tuple[str, TopicPartition, int]] = [
        (name, tp, offset) for name, plan in plans.items() for tp, offset in sorted(plan.items())
    ]
    if as_json:
        print_json(
            [
                {"group": name, "topic": tp.topic, "partition": tp.partition, "offset": offset}
                for name, tp, offset in rows
            ]
        )
    elif export:
        for name, tp, offset in rows:
            click.echo((f"{name}," if names_groups else "") + f"{tp.topic},{tp.partition},{offset}")
    elif is_terminal():
        print_table(
            ("GROUP", "TOPIC", "PARTITION", "NEW OFFSET"),
            [(name, tp.topic, tp.partition, offset) for name, tp, offset in rows],
        )
    else:
        widths = [
            max([15, *(len(name) for name, _, _ in rows)]),
            max([15, *(len(tp.topic) for _, tp, _ in rows)]),
            10,
            0,
        ]
        click.echo("\n" + group_views.columns(widths, ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]))
        for name, tp, offset in rows:
            click.echo(group_views.columns(widths, [name, tp.topic, tp.partition, offset]))
