"""`headrace delete-records`: delete records up to an offset, with the flags of `kafka-delete-records.sh`.

The file has an offset for each partition. Records below it are deleted. The offset -1 deletes all records:

    {"partitions": [{"topic": "events", "partition": 0, "offset": 100}], "version": 1}

The output has a result or an error for each partition. As in Kafka's tool, the exit code is 0 in both cases.
"""

import json
from pathlib import Path
from typing import Any

import click

from headrace.cli.common.connection import Connection, connection_options
from headrace.cli.common.output import json_option, print_json
from headrace.cli.common.progress import Progress
from headrace.cli.common.tool import Failure, Tool
from headrace.common.types import TopicPartition

_AT_ONCE = 500
"""Partitions per call, so that a long list shows progress."""


@click.command("delete-records", cls=Tool)
@connection_options
@click.option(
    "--offset-json-file", metavar="FILE", required=True, help="A JSON file with an offset for each partition."
)
@json_option
def delete_records(connection: Connection, offset_json_file: str, as_json: bool) -> int:
    """Delete records of partitions up to an offset."""
    offsets = _read(offset_json_file)
    results: dict[TopicPartition, Any] = {}
    with connection.admin() as admin:
        if not as_json:
            click.echo("Executing records delete operation")
        entries = list(offsets.items())
        with Progress("partitions", len(entries)) as progress:
            for start in range(0, len(entries), _AT_ONCE):
                part = dict(entries[start : start + _AT_ONCE])
                results.update(admin.delete_records(part, raise_errors=False))
                progress.add(len(part))
    if as_json:
        print_json(
            [
                {
                    "topic": tp.topic,
                    "partition": tp.partition,
                    "low_watermark": None if result.error else result.low_watermark,
                    "error": str(result.error) if result.error else None,
                }
                for tp, result in results.items()
            ]
        )
        return 0
    click.echo("Records delete operation completed:")
    for tp, result in results.items():
        outcome = f"low_watermark: {result.low_watermark}" if result.error is None else f"error: {result.error}"
        click.echo(f"partition: {tp.topic}-{tp.partition}\t{outcome}")
    return 0  # as in Kafka's tool, which prints errors per partition


def _read(path: str) -> dict[TopicPartition, int]:
    try:
        document = json.loads(Path(path).read_text())
    except json.JSONDecodeError as error:
        raise Failure(f"{path} is not JSON: {error}") from None
    except OSError as error:
        raise Failure(f"Cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Failure(f"{path} is not valid UTF-8") from None
    shape = '{"partitions": [{"topic": "events", "partition": 0, "offset": 100}], "version": 1}'
    if not isinstance(document, dict) or not isinstance(document.get("partitions"), list):
        raise Failure(f"{path}: expected {shape}")
    if document.get("version", 1) != 1:
        raise Failure(f"{path}: version {document['version']!r} is not supported; expected 1")
    offsets: dict[TopicPartition, int] = {}
    for number, entry in enumerate(document["partitions"]):
        if not isinstance(entry, dict) or not (
            isinstance(entry.get("topic"), str)
            and all(
                isinstance(entry.get(key), int) and not isinstance(entry[key], bool) for key in ("partition", "offset")
            )
        ):
            raise Failure(f"{path}: entry {number} of partitions is {entry!r}; expected entries as in {shape}")
        tp = TopicPartition(entry["topic"], entry["partition"])
        if not -(1 << 63) <= entry["offset"] < 1 << 63:
            raise Failure(f"{path}: offset {entry['offset']} of {tp} is out of range: expected a 64-bit integer")
        if tp in offsets:
            raise Failure(f"{path}: partition {entry['partition']} of topic {entry['topic']} appears twice")
        offsets[tp] = entry["offset"]
    if not offsets:
        raise Failure(f"{path} has no partitions; expected {shape}")
    return offsets
