"""The JSON files of `kafka-reassign-partitions.sh`.

An assignment names the replicas of partitions; the first one is the preferred leader. It may also name the log
directory of each replica; "any" leaves it to the broker:

    {"version": 1, "partitions": [
        {"topic": "orders", "partition": 0, "replicas": [2, 3, 4], "log_dirs": ["any", "any", "/disk2/data"]}
    ]}

The topics of `--generate`:

    {"version": 1, "topics": [{"topic": "orders"}]}
"""

import json
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

import click

from headrace.cli.common.tool import read_file
from headrace.client.types import TopicPartitionReplica
from headrace.common.types import TopicPartition

Assignment: TypeAlias = Mapping[TopicPartition, tuple[int, ...]]
"""The replicas of partitions."""

LogDirs: TypeAlias = Mapping[TopicPartitionReplica, str]
"""The log directories of replicas."""

_ANY_DIRECTORY = "any"


class Targets(NamedTuple):
    """What a file demands."""

    replicas: dict[TopicPartition, tuple[int, ...]]
    log_dirs: dict[TopicPartitionReplica, str]
    """Only of the replicas for which the file names one."""


def read_assignment(path: str) -> Targets:
    """Reads the new replicas of partitions, and their log directories. Raises a usage error."""
    try:
        document = json.loads(read_file(path))
        targets: dict[TopicPartition, tuple[int, ...]] = {}
        log_dirs: dict[TopicPartitionReplica, str] = {}
        for entry in document["partitions"]:
            tp = TopicPartition(str(entry["topic"]), int(entry["partition"]))
            if tp in targets:
                raise ValueError(f"partition {tp} is listed twice")
            targets[tp] = tuple(map(int, entry["replicas"]))
            directories = [str(directory) for directory in entry.get("log_dirs", [_ANY_DIRECTORY] * len(targets[tp]))]
            if len(directories) != len(targets[tp]):
                raise ValueError(
                    f"Size of replicas list {list(targets[tp])} is different from size of log dirs list {directories} "
                    f"for partition {tp}"
                )
            for broker, directory in zip(targets[tp], directories, strict=True):
                if directory != _ANY_DIRECTORY:
                    log_dirs[TopicPartitionReplica(*tp, broker)] = directory
    except (ValueError, KeyError, TypeError) as error:
        raise click.UsageError(f"{path} is not a reassignment: {type(error).__name__}: {error}") from None
    if not targets:
        raise click.UsageError(f"{path} has no partitions")
    return Targets(targets, log_dirs)


def read_topics(path: str) -> list[str]:
    """Reads the topics to move. Raises a usage error."""
    try:
        topics = [str(entry["topic"]) for entry in json.loads(read_file(path))["topics"]]
    except (ValueError, KeyError, TypeError) as error:
        raise click.UsageError(
            f'{path}: expected {{"version": 1, "topics": [{{"topic": "t"}}, ...]}}; {type(error).__name__}: {error}'
        ) from None
    if not topics:
        raise click.UsageError(f"{path} has no topics")
    duplicates = sorted({topic for topic in topics if topics.count(topic) > 1})
    if duplicates:
        raise click.UsageError(f"List of topics to reassign contains duplicate entries: {', '.join(duplicates)}")
    return topics


def as_json(assignment: Assignment) -> str:
    partitions = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "replicas": list(replicas),
            "log_dirs": [_ANY_DIRECTORY] * len(replicas),
        }
        for tp, replicas in sorted(assignment.items())
    ]
    return json.dumps({"version": 1, "partitions": partitions}, separators=(",", ":"))
