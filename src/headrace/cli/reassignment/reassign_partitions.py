"""`headrace reassign-partitions`: move partitions to other brokers, or to other log directories of their brokers.

It has the flags of `kafka-reassign-partitions.sh`.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import click

from headrace.cli.common.connection import Connection, connection_options
from headrace.cli.common.output import is_terminal
from headrace.cli.common.tool import LONG_MAX, Failure, Tool, exactly_one, only_with, sentence
from headrace.cli.reassignment.facts import Sizes, all_replicas, current_replicas, replica_sizes
from headrace.cli.reassignment.files import Assignment, Targets, as_json, read_assignment, read_topics
from headrace.cli.reassignment.log_dir_moves import (
    log_dir_states,
    print_log_dirs_plan,
    start_log_dir_moves,
    wait_until_moved,
)
from headrace.cli.reassignment.plan import Move, moves_of, propose
from headrace.cli.reassignment.progress import print_plan, wait_until_done
from headrace.cli.reassignment.throttles import Throttles, clear_throttles, set_log_dirs_throttle, set_throttle
from headrace.common.clock import SystemClock
from headrace.common.errors import HeadraceError
from headrace.common.ids import make_random
from headrace.common.types import TopicPartition

if TYPE_CHECKING:
    from headrace.client.admin.admin import Admin


@click.command("reassign-partitions", cls=Tool)
@connection_options
@click.option("--generate", is_flag=True, help="Propose an assignment of topics to brokers. Changes nothing.")
@click.option("--execute", is_flag=True, help="Start the reassignments of the file.")
@click.option("--verify", is_flag=True, help="Show which reassignments of the file are complete.")
@click.option("--cancel", is_flag=True, help="Cancel the reassignments of the file that are in progress.")
@click.option("--list", "list_", is_flag=True, help="Show all reassignments in progress.")
@click.option("--reassignment-json-file", metavar="FILE", help="The new replicas of each partition.")
@click.option("--topics-to-move-json-file", metavar="FILE", help="The topics of --generate.")
@click.option("--broker-list", metavar="ID,...", help="The brokers of --generate.")
@click.option("--disable-rack-aware", is_flag=True, help="Ignore racks in --generate.")
@click.option("--additional", is_flag=True, help="Execute although other reassignments are in progress.")
@click.option(
    "--throttle",
    type=click.IntRange(1, LONG_MAX),
    metavar="BYTES",
    help="Copy at most so many bytes per second from and to each broker. --verify removes the throttle in the end.",
)
@click.option(
    "--replica-alter-log-dirs-throttle",
    type=click.IntRange(1, LONG_MAX),
    metavar="BYTES",
    help="Copy at most so many bytes per second between the log directories of each broker. --verify removes the "
    "throttle in the end.",
)
@click.option(
    "--timeout",
    "timeout_ms",
    type=click.IntRange(0, LONG_MAX),
    default=10_000,
    metavar="MS",
    help="How long to wait until moves between log directories can begin, because a broker has no such replica yet; "
    "default: 10000.",
)
@click.option("--preserve-throttles", is_flag=True, help="Do not remove throttles in --verify and --cancel.")
@click.option(
    "--wait/--no-wait",
    default=None,
    help="With --execute: show the plan, wait until the reassignment is done, show its progress, and remove the "
    "throttle in the end. Default on a terminal.",
)
@click.option(
    "--disallow-replication-factor-change", is_flag=True, help="Refuse to change the number of a partition's replicas."
)
def reassign_partitions(
    connection: Connection,
    generate: bool,
    execute: bool,
    verify: bool,
    cancel: bool,
    list_: bool,
    reassignment_json_file: str | None,
    topics_to_move_json_file: str | None,
    broker_list: str | None,
    disable_rack_aware: bool,
    additional: bool,
    throttle: int | None,
    replica_alter_log_dirs_throttle: int | None,
    timeout_ms: int,
    preserve_throttles: bool,
    wait: bool | None,
    disallow_replication_factor_change: bool,
) -> None:
    """Move partitions to other brokers, or to other log directories."""
    action = exactly_one(
        {"--generate": generate, "--execute": execute, "--verify": verify, "--cancel": cancel, "--list": list_},
        "action",
    )
    only_with("--topics-to-move-json-file", topics_to_move_json_file is not None, generate, "--generate")
    only_with("--broker-list", broker_list is not None, generate, "--generate")
    only_with("--disable-rack-aware", disable_rack_aware, generate, "--generate")
    only_with("--additional", additional, execute, "--execute")
    only_with("--throttle", throttle is not None, execute, "--execute")
    only_with("--preserve-throttles", preserve_throttles, verify or cancel, "--verify and --cancel")
    only_with("--replica-alter-log-dirs-throttle", replica_alter_log_dirs_throttle is not None, execute, "--execute")
    only_with("--wait" if wait else "--no-wait", wait is not None, execute, "--execute")
    only_with("--disallow-replication-factor-change", disallow_replication_factor_change, execute, "--execute")
    only_with(
        "--reassignment-json-file",
        reassignment_json_file is not None,
        execute or verify or cancel,
        "--execute, --verify and --cancel",
    )
    if generate:
        if topics_to_move_json_file is None or broker_list is None:
            raise click.UsageError("--generate needs --topics-to-move-json-file and --broker-list")
        topics, brokers = read_topics(topics_to_move_json_file), _broker_ids(broker_list)
        with connection.admin() as admin:
            _generate(admin, topics, brokers, not disable_rack_aware)
        return
    if reassignment_json_file is None and not list_:
        raise click.UsageError(f"{action} needs --reassignment-json-file")
    targets = Targets({}, {}) if reassignment_json_file is None else read_assignment(reassignment_json_file)
    with connection.admin() as admin:
        if list_:
            _list(admin)
        elif verify:
            _verify(admin, targets, preserve_throttles)
        elif cancel:
            _cancel(admin, targets, preserve_throttles, timeout_ms)
        else:
            waits = is_terminal() if wait is None else wait
            throttles = Throttles(throttle, replica_alter_log_dirs_throttle)
            _execute(admin, targets, additional, throttles, not disallow_replication_factor_change, waits, timeout_ms)


def _generate(admin: "Admin", topics: Iterable[str], broker_ids: Iterable[int], use_racks: bool) -> None:
    described = admin.describe_topics(topics)
    current = {
        TopicPartition(topic.name, partition.partition): partition.replicas
        for topic in described.values()
        for partition in topic.partitions
    }
    running = {broker.id: broker.rack if use_racks else None for broker in admin.describe_cluster().brokers}
    for broker_id in broker_ids:
        if broker_id not in running:
            click.echo(f"Broker {broker_id} is not running: the proposed assignment does not use it", err=True)
    brokers = {broker_id: running[broker_id] for broker_id in broker_ids if broker_id in running}
    proposed = propose(current, brokers, make_random())
    click.echo(f"Current partition replica assignment\n{as_json(current)}\n")
    click.echo(f"Proposed partition reassignment configuration\n{as_json(proposed)}")


def _list(admin: "Admin") -> None:
    ongoing = admin.list_partition_reassignments()
    if not ongoing:
        click.echo("No partition reassignments found.")
        return
    click.echo("Current partition reassignments:")
    for tp, state in sorted(ongoing.items()):
        adding = f" adding: {_ids(state.adding_replicas)}." if state.adding_replicas else ""
        removing = f" removing: {_ids(state.removing_replicas)}." if state.removing_replicas else ""
        click.echo(f"{tp.topic}-{tp.partition}: replicas: {_ids(state.replicas)}.{adding}{removing}")


def _execute(
    admin: "Admin",
    demanded: Targets,
    additional: bool,
    throttles: Throttles,
    allow_change: bool,
    waits: bool,
    timeout_ms: int,
) -> None:
    targets, throttle = demanded.replicas, throttles.between_brokers
    ongoing = admin.list_partition_reassignments()
    if not additional and ongoing:
        raise Failure(
            "Cannot execute because there is an existing partition assignment. Use --additional to override this and "
            "create a new partition assignment in addition to the existing one. The --additional flag can also be used "
            "to change the throttle by resubmitting the current reassignment."
        )
    _check_brokers(admin, targets)
    current = current_replicas(admin, targets)
    missing = sorted(targets.keys() - current.keys())
    if missing:
        raise Failure(f"Unable to find partition: {_names(missing)}")
    click.echo(f"Current partition replica assignment\n\n{as_json(current)}\n")
    click.echo("Save this to use as the --reassignment-json-file option during rollback")
    all_moves = moves_of(targets, current, ongoing)
    moves = {tp: all_moves[tp] for tp in targets}
    sizes = _sizes(admin, moves) if waits else None
    if waits:
        before = all_replicas(admin) | {tp: move.sources for tp, move in all_moves.items()}
        if demanded.log_dirs:
            print_log_dirs_plan(admin, demanded.log_dirs)
        print_plan(before, before | {tp: move.targets for tp, move in all_moves.items()}, moves, sizes)
    if throttles.any:
        if not waits:
            click.echo(
                "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle "
                "is removed."
            )
        if throttle is not None:
            set_throttle(admin, all_moves, throttle)
        if throttles.between_log_dirs is not None:
            brokers = {replica.broker_id for replica in demanded.log_dirs}
            set_log_dirs_throttle(admin, brokers, throttles.between_log_dirs)
    results = admin.alter_partition_reassignments(
        targets, allow_replication_factor_change=allow_change, raise_errors=False
    )
    if results.errors:
        lines = "; ".join(f"{tp.topic}-{tp.partition}: {sentence(error)}" for tp, error in results.errors.items())
        kept = "" if not throttles.any else ". The throttle remains until --verify or --cancel removes it"
        raise Failure(f"Error reassigning partition(s): {lines}{kept}")
    click.echo(f"Successfully started partition reassignment{_plural(targets)} for {_names(targets)}")
    if demanded.log_dirs:
        start_log_dir_moves(admin, demanded.log_dirs, SystemClock(), timeout_ms)
    if waits:
        _wait(admin, demanded, moves, sizes, throttles)


def _check_brokers(admin: "Admin", targets: Assignment) -> None:
    """Raises a Failure for brokers that do not run. The controller refuses them too, but after throttles were set."""
    running = {broker.id for broker in admin.describe_cluster().brokers}
    unknown = sorted({replica for replicas in targets.values() for replica in replicas} - running)
    if unknown:
        raise Failure(f"Unknown broker id {_ids(unknown)}: no such brokers are running")


def _wait(
    admin: "Admin",
    targets: Targets,
    moves: Mapping[TopicPartition, Move],
    sizes: Sizes | None,
    throttles: Throttles,
) -> None:
    try:
        wait_until_done(admin, moves, sizes, SystemClock())
        if targets.log_dirs:
            wait_until_moved(admin, targets.log_dirs, SystemClock())
    except KeyboardInterrupt:
        removed = "" if not throttles.any else " and removes the throttle"
        click.echo(f"The reassignment continues. --verify shows when it is done{removed}", err=True)
        raise
    if not _verify(admin, targets, preserve_throttles=not throttles.any):
        raise Failure("The reassignment did not complete. It was cancelled or replaced, or topics were deleted")
    if throttles.any and admin.list_partition_reassignments():
        click.echo("Other reassignments are in progress, so the throttle remains. --verify removes it", err=True)


def _sizes(admin: "Admin", moves: Mapping[TopicPartition, Move]) -> Sizes | None:
    try:
        return replica_sizes(admin, moves)
    except HeadraceError as error:  # for example, not authorized
        click.echo(f"The sizes of the replicas are unknown: {sentence(error)}", err=True)
        return None


def _verify(admin: "Admin", demanded: Targets, preserve_throttles: bool) -> bool:
    """Prints the states of the reassignments. Returns True if all are complete."""
    targets = demanded.replicas
    ongoing = admin.list_partition_reassignments()
    current = current_replicas(admin, targets)
    click.echo("Status of partition reassignment:")
    for tp, target in sorted(targets.items()):
        name = f"{tp.topic}-{tp.partition}"
        if tp in ongoing:
            click.echo(f"Reassignment of partition {name} is still in progress.")
        elif current.get(tp) == target:
            click.echo(f"Reassignment of partition {name} is completed.")
        else:
            click.echo(
                f"There is no active reassignment of partition {name}, but replica set is "
                f"{_ids(current.get(tp, ()))} rather than {_ids(target)}."
            )
    states = log_dir_states(admin, demanded.log_dirs)
    click.echo("\n".join(state.sentence for state in states))
    if not ongoing and not any(state.is_active for state in states) and not preserve_throttles:
        _clear_throttles(admin, targets, current)
    return current == targets and not targets.keys() & ongoing.keys() and all(state.is_complete for state in states)


def _cancel(admin: "Admin", demanded: Targets, preserve_throttles: bool, timeout_ms: int) -> None:
    targets = demanded.replicas
    ongoing = admin.list_partition_reassignments(list(targets))
    if ongoing:
        _cancel_active(admin, ongoing)
    else:
        click.echo("None of the specified partition reassignments are active.")
    active = {
        state.replica: state.current_path
        for state in log_dir_states(admin, demanded.log_dirs)
        if state.is_active and state.current_path is not None
    }
    if active:
        start_log_dir_moves(admin, active, SystemClock(), timeout_ms)
    else:
        click.echo("None of the specified partition moves are active.")
    if not preserve_throttles:
        _clear_throttles(admin, targets, current_replicas(admin, targets))


def _cancel_active(admin: "Admin", ongoing: Iterable[TopicPartition]) -> None:
    results = admin.alter_partition_reassignments(dict.fromkeys(ongoing), raise_errors=False)
    if results.errors:
        lines = "; ".join(f"{tp.topic}-{tp.partition}: {sentence(error)}" for tp, error in results.errors.items())
        raise Failure(f"Error cancelling partition reassignment{_plural(results.errors)}: {lines}")
    click.echo(f"Successfully cancelled partition reassignment{_plural(results)} for: {_names(results)}")


def _clear_throttles(admin: "Admin", targets: Assignment, current: Assignment) -> None:
    replicas = {replica for replicas in targets.values() for replica in replicas}
    clear_throttles(admin, replicas, {tp.topic for tp in current})


def _broker_ids(text: str) -> list[int]:
    try:
        ids = [int(part) for part in text.split(",")]
    except ValueError:
        raise click.UsageError(f"--broker-list {text!r}: expected comma-separated broker ids") from None
    duplicates = sorted({broker_id for broker_id in ids if ids.count(broker_id) > 1})
    if duplicates:
        raise click.UsageError(f"Broker list contains duplicate entries: {_ids(duplicates)}")
    return ids


def _ids(replicas: Iterable[int]) -> str:
    return ",".join(map(str, replicas))


def _names(tps: Iterable[TopicPartition]) -> str:
    return ",".join(f"{tp.topic}-{tp.partition}" for tp in sorted(tps))


def _plural(items: Mapping[TopicPartition, object]) -> str:
    return "s" if len(items) > 1 else ""
