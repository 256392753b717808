"""Moves of replicas between the log directories of their brokers, as part of a reassignment."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import click

from headrace.cli.common.output import print_table
from headrace.cli.common.progress import Progress
from headrace.cli.common.tool import Failure, sentence
from headrace.cli.reassignment.files import LogDirs
from headrace.client.types import TopicPartitionReplica
from headrace.common.clock import Clock
from headrace.common.errors import HeadraceError, KafkaError, ReplicaNotAvailableError
from headrace.common.types import TopicPartition
from headrace.diagnosis.snapshot import in_bytes

if TYPE_CHECKING:
    from headrace.client.admin.admin import Admin

_RETRY_SECONDS = 0.1
_POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class LogDirState:
    """Where a replica is, and where it is to be."""

    replica: TopicPartitionReplica
    target: str
    current_path: str | None
    future_path: str | None
    lag: int = 0

    @property
    def is_active(self) -> bool:
        return self.current_path is not None and self.future_path is not None

    @property
    def is_complete(self) -> bool:
        return self.current_path == self.target and self.future_path is None

    @property
    def sentence(self) -> str:
        """What Kafka's tool prints for --verify."""
        topic, partition, broker = self.replica
        name = f"Partition {topic}-{partition}"
        if self.current_path is None:
            return (
                f"{name} is not found in any live log dir on broker {broker}. There is likely an offline log directory "
                "on the broker."
            )
        if self.future_path is None:
            if self.is_complete:
                return f"Reassignment of replica {replica_name(self.replica)} completed successfully."
            return f"{name} on broker {broker} is not being moved from log dir {self.current_path} to {self.target}."
        if self.future_path == self.target:
            return f"Reassignment of replica {replica_name(self.replica)} is still in progress."
        return f"{name} on broker {broker} is being moved to log dir {self.future_path} instead of {self.target}."


def replica_name(replica: TopicPartitionReplica) -> str:
    return f"{replica.topic}-{replica.partition}-{replica.broker_id}"


def log_dir_states(admin: "Admin", targets: LogDirs) -> list[LogDirState]:
    """Returns the states of replicas, sorted."""
    found = admin.describe_replica_log_dirs(sorted(targets)) if targets else {}
    return [
        LogDirState(replica, targets[replica], state.current_path, state.future_path, max(0, state.future_offset_lag))
        for replica, state in sorted(found.items())
    ]


def start_log_dir_moves(admin: "Admin", targets: LogDirs, clock: Clock, timeout_ms: int) -> None:
    """Starts the moves. Repeats those of replicas that do not exist yet, because they are still being reassigned."""
    pending: Mapping[TopicPartitionReplica, str] = targets
    deadline = clock.monotonic() + timeout_ms / 1000
    while True:
        results = admin.alter_replica_log_dirs(pending, raise_errors=False)
        started = sorted(replica for replica, result in results.items() if result.error is None)
        if started:
            click.echo(f"Successfully started log directory move{_plural(started)} for: {_names(started)}")
        failed = {replica: error for replica, error in results.errors.items() if not _is_missing(error)}
        if failed:
            lines = "; ".join(f"{replica_name(replica)}: {sentence(error)}" for replica, error in failed.items())
            raise Failure(f"Failed to alter dir for {lines}")
        pending = {replica: path for replica, path in pending.items() if replica not in started}
        if not pending:
            return
        if clock.monotonic() >= deadline:
            raise Failure(
                f"Timed out before log directory move{_plural(pending)} could be started for: {_names(pending)}"
            )
        clock.sleep(_RETRY_SECONDS)


def _is_missing(error: KafkaError) -> bool:
    return isinstance(error, ReplicaNotAvailableError)


def print_log_dirs_plan(admin: "Admin", targets: LogDirs) -> None:
    """Prints how many bytes move to each log directory."""
    partitions: dict[str, list[int]] = {}
    for replica in targets:
        partitions.setdefault(replica.topic, []).append(replica.partition)
    described = admin.describe_log_dirs(partitions, brokers=sorted({replica.broker_id for replica in targets}))
    rows: dict[tuple[int, str], tuple[int, int]] = {}
    for replica, path in sorted(targets.items()):
        sizes = {
            directory.path: found.size
            for directory in described[replica.broker_id]
            if (found := directory.replicas.get(TopicPartition(replica.topic, replica.partition))) is not None
            and not found.is_future
        }
        count, size = rows.get((replica.broker_id, path), (0, 0))
        if path not in sizes:
            rows[replica.broker_id, path] = count + 1, size + sum(sizes.values())
    if not rows:
        return
    click.echo("\nPlan of moves between log directories")
    print_table(
        ("BROKER", "TO LOG DIRECTORY", "REPLICAS", "TO COPY"),
        [(broker, path, count, in_bytes(size)) for (broker, path), (count, size) in sorted(rows.items())],
    )


def wait_until_moved(admin: "Admin", targets: LogDirs, clock: Clock) -> None:
    """Returns when no replica is moving any more. Shows progress on a terminal."""
    with Progress("replicas in their log directories", len(targets), clock) as progress:
        while True:
            try:
                states = log_dir_states(admin, targets)
            except HeadraceError as error:
                progress.clear()
                click.echo(f"{sentence(error)}; retrying", err=True)
                clock.sleep(_POLL_SECONDS)
                continue
            active = [state for state in states if state.is_active]
            note = f"{sum(state.lag for state in active):,} offsets behind"
            progress.add(max(0, len(targets) - len(active) - progress.done), partial(str, note))
            if not active:
                return
            clock.sleep(_POLL_SECONDS)


def _names(replicas: "Mapping[TopicPartitionReplica, str] | list[TopicPartitionReplica]") -> str:
    return ",".join(replica_name(replica) for replica in sorted(replicas))


def _plural(items: "Mapping[TopicPartitionReplica, str] | list[TopicPartitionReplica]") -> str:
    return "" if len(items) == 1 else "s"
