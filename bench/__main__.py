"""Runs the benchmarks and writes their results."""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.apache_kafka.broker import KafkaUnavailable

from bench import (
    broker,
    clients,
    cluster,
    console,
    groups,
    log,
    processes,
    protocol,
    reassignment,
    records,
    security,
    spark,
    tools,
    topics,
)
from bench.harness import Measurement, describe, write_results
from bench.hostile import runner as hostile
from bench.pipeline import runner as pipeline
from bench.pipeline.sides import ALL_SIDES, SQL_PIPELINE

ROUNDS = 11
ALL = [
    *("records", "log", "protocol", "broker", "topics", "groups", "cluster", "clients", "tools", "spark", "pipeline"),
    *("hostile", "processes", "security", "reassignment", "console"),
]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Compare the performance of Headrace with its peers."
    )
    parser.add_argument("which", nargs="*", choices=[*ALL, []], help="benchmarks to run (default: all)")
    parser.add_argument(
        "--rounds",
        type=int,
        help=f"alternating rounds per comparison (default: {ROUNDS}; broker, groups, clients: {broker.ROUNDS};"
        f" cluster: {cluster.ROUNDS}; processes: {processes.ROUNDS}; security: {security.ROUNDS};"
        f" reassignment: {reassignment.ROUNDS}; console: {console.ROUNDS}; spark: {spark.ROUNDS};"
        f" pipeline: {pipeline.ROUNDS})",
    )
    parser.add_argument("--directory", type=Path, help="directory for data (default: .bench-data)")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="shorter runs; does not write results",
    )
    parser.add_argument(
        "--self-check", action="store_true", help="broker: compare Apache Kafka with itself; does not write results"
    )
    parser.add_argument(
        "--only",
        default="",
        help="broker, clients, spark: run only cases whose name contains this text; does not write results. "
        "cluster: load or failover; does not write results. "
        "hostile: run only such attacks, and replace their rows in the results",
    )
    parser.add_argument(
        "--part",
        nargs="+",
        choices=pipeline.PARTS,
        default=pipeline.PARTS,
        help="pipeline: parts to run (default: all)",
    )
    parser.add_argument(
        "--sides",
        default=",".join(ALL_SIDES),
        help="pipeline: versions to compare, separated by commas (default: %(default)s)",
    )
    parser.add_argument(
        "--peer", default=str(SQL_PIPELINE), help="pipeline: file of the pipeline in SQL (default: %(default)s)"
    )
    arguments = parser.parse_args()
    which = arguments.which or ALL
    if "records" in which:
        keep_results(arguments, "records", records.run(arguments.rounds or ROUNDS))
    if "log" in which:
        with data_directory(arguments.directory) as directory:
            write_results("log", *log.run(directory, arguments.rounds or ROUNDS))
    if "protocol" in which:
        keep_results(arguments, "protocol", protocol.run(arguments.rounds or ROUNDS))
    if "broker" in which:
        with data_directory(arguments.directory) as directory:
            run_broker(arguments, directory)
    if "topics" in which:
        with data_directory(arguments.directory) as directory:
            run_topics(arguments, directory)
    if "groups" in which:
        with data_directory(arguments.directory) as directory:
            run_groups(arguments, directory)
    if "cluster" in which:
        with data_directory(arguments.directory) as directory:
            run_cluster(arguments, directory)
    if "processes" in which:
        with data_directory(arguments.directory) as directory:
            run_processes(arguments, directory)
    if "security" in which:
        with data_directory(arguments.directory) as directory:
            run_security(arguments, directory)
    if "reassignment" in which:
        with data_directory(arguments.directory) as directory:
            run_reassignment(arguments, directory)
    if "console" in which:
        with data_directory(arguments.directory) as directory:
            run_console(arguments, directory)
    if "clients" in which:
        with data_directory(arguments.directory) as directory:
            run_clients(arguments, directory)
    if "tools" in which:
        write_results("tools", tools.run(arguments.rounds or tools.ROUNDS), tools.NOTES)
    if "spark" in which:
        with data_directory(arguments.directory) as directory:
            run_spark(arguments, directory)
    if "pipeline" in which:
        with data_directory(arguments.directory) as directory:
            run_pipeline(arguments, directory)
    if "hostile" in which:
        with data_directory(arguments.directory) as directory:
            hostile.run(directory, quick=arguments.quick, only=arguments.only)


def keep_results(arguments: argparse.Namespace, name: str, measurements: list[Measurement]) -> None:
    if not arguments.quick:
        write_results(name, measurements, [])


@contextmanager
def data_directory(root: Path | None) -> Iterator[Path]:
    root = root or Path(".bench-data")
    root.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root) as directory:
        yield Path(directory).absolute()


def run_broker(arguments: argparse.Namespace, directory: Path) -> None:
    try:
        measurements, notes = broker.run(
            directory,
            arguments.rounds or (2 if arguments.quick else broker.ROUNDS),
            quick=arguments.quick,
            self_check=arguments.self_check,
            only=arguments.only,
        )
    except KafkaUnavailable as reason:
        print(f"broker: not measured, because Apache Kafka is not available: {reason}", file=sys.stderr)
        return
    if arguments.quick or arguments.self_check or arguments.only:
        print("\n".join(notes), file=sys.stderr)
    else:
        write_results("broker", measurements, notes)


def run_topics(arguments: argparse.Namespace, directory: Path) -> None:
    try:
        measurements, notes = topics.run(directory, arguments.rounds or topics.ROUNDS, quick=arguments.quick)
    except KafkaUnavailable as reason:
        print(f"topics: not measured, because Apache Kafka is not available: {reason}", file=sys.stderr)
        return
    if not arguments.quick:
        write_results("topics", measurements, notes)


def run_groups(arguments: argparse.Namespace, directory: Path) -> None:
    try:
        measurements, notes = groups.run(directory, arguments.rounds or broker.ROUNDS, quick=arguments.quick)
    except KafkaUnavailable as reason:
        print(f"groups: not measured, because Apache Kafka is not available: {reason}", file=sys.stderr)
        return
    if arguments.quick:
        print("\n".join(map(describe, measurements)), file=sys.stderr)
    else:
        write_results("groups", measurements, notes)


def run_cluster(arguments: argparse.Namespace, directory: Path) -> None:
    rounds = arguments.rounds or (1 if arguments.quick else cluster.ROUNDS)
    sizes = cluster.QUICK if arguments.quick else cluster.Sizes()
    keep = not arguments.quick and not arguments.only

    def after_part(measurements: list[Measurement], notes: list[str]) -> None:
        if keep:
            write_results("cluster", measurements, notes)

    try:
        _, notes = cluster.run(directory, rounds, sizes=sizes, only=arguments.only, after_part=after_part)
    except KafkaUnavailable as reason:
        print(f"cluster: not measured, because Apache Kafka is not available: {reason}", file=sys.stderr)
        return
    if not keep:
        print("\n".join(notes), file=sys.stderr)


def run_reassignment(arguments: argparse.Namespace, directory: Path) -> None:
    rounds = arguments.rounds or (1 if arguments.quick else reassignment.ROUNDS)
    sizes = reassignment.QUICK if arguments.quick else reassignment.Sizes()
    try:
        measurements, notes = reassignment.run(directory, rounds, sizes=sizes)
    except KafkaUnavailable as reason:
        print(f"reassignment: not measured, because Apache Kafka is not available: {reason}", file=sys.stderr)
        return
    if not arguments.quick:
        write_results("reassignment", measurements, notes)


def run_processes(arguments: argparse.Namespace, directory: Path) -> None:
    rounds = arguments.rounds or (1 if arguments.quick else processes.ROUNDS)
    sizes = processes.QUICK if arguments.quick else processes.Sizes()
    try:
        measurements, notes = processes.run(directory, rounds, sizes=sizes)
    except KafkaUnavailable as reason:
        print(f"processes: not measured, because Apache Kafka is not available: {reason}", file=sys.stderr)
        return
    if arguments.quick:
        print("\n".join(notes), file=sys.stderr)
    else:
        write_results("processes", measurements, notes)


def run_security(arguments: argparse.Namespace, directory: Path) -> None:
    rounds = arguments.rounds or (1 if arguments.quick else security.ROUNDS)
    sizes = security.QUICK if arguments.quick else security.Sizes()
    try:
        measurements, notes = security.run(directory, rounds, sizes=sizes)
    except KafkaUnavailable as reason:
        print(f"security: not measured, because Apache Kafka is not available: {reason}", file=sys.stderr)
        return
    if arguments.quick:
        print("\n".join(notes), file=sys.stderr)
    else:
        write_results("security", measurements, notes)


def run_console(arguments: argparse.Namespace, directory: Path) -> None:
    rounds = arguments.rounds or (1 if arguments.quick else console.ROUNDS)
    sizes = console.QUICK if arguments.quick else console.Sizes()
    measurements, notes = console.run(directory, rounds, sizes=sizes)
    if arguments.quick:
        print("\n".join(notes), file=sys.stderr)
    else:
        write_results("console", measurements, notes)


def run_clients(arguments: argparse.Namespace, directory: Path) -> None:
    measurements, notes = clients.run(
        directory,
        arguments.rounds or (2 if arguments.quick else clients.ROUNDS),
        quick=arguments.quick,
        only=arguments.only,
    )
    if not arguments.quick and not arguments.only:
        write_results("clients", measurements, notes)


def run_spark(arguments: argparse.Namespace, directory: Path) -> None:
    rounds = arguments.rounds or (2 if arguments.quick else spark.ROUNDS)
    try:
        measurements, notes = spark.run(directory, rounds, quick=arguments.quick, only=arguments.only)
    except KafkaUnavailable as reason:
        print(
            f"spark: not measured, because Java or Spark's Kafka connector is not available: {reason}", file=sys.stderr
        )
        return
    if not arguments.quick and not arguments.only:
        write_results("spark", measurements, notes)


def run_pipeline(arguments: argparse.Namespace, directory: Path) -> None:
    sides = arguments.sides.split(",")
    try:
        pipeline.run(directory, arguments.part, sides, arguments.peer, arguments.rounds, quick=arguments.quick)
    except KafkaUnavailable as reason:
        print(
            f"pipeline: not measured, because Java or Spark's Kafka connector is not available: {reason}",
            file=sys.stderr,
        )


if __name__ == "__main__":
    main()
