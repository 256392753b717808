"""`headrace dump-log`: prints the contents of a log's files, with the flags of `kafka-dump-log.sh`.

It needs no broker and also reads files of Apache Kafka. The file name determines the type:
`.log`, `.index`, `.timeindex`, `.txnindex`, `.snapshot`, and `leader-epoch-checkpoint`.
"""

import json
import mmap
import struct
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from headrace.cli.common.output import is_terminal, json_option
from headrace.cli.common.progress import Progress
from headrace.cli.common.tool import Failure, Tool, sentence
from headrace.cli.records import internal_records
from headrace.cli.records.message_format import deserializer
from headrace.common.errors import HeadraceError
from headrace.records import Compression, RecordBatch, decode_rows, read_marker
from headrace.storage.producer_snapshots import decode_snapshot

PrintLine = Callable[[str, dict[str, Any]], None]
_INDEX, _TIME_INDEX, _TXN_INDEX = struct.Struct(">ii"), struct.Struct(">qi"), struct.Struct(">hqqqq")
_SIZE_AT, _OVERHEAD = 8, 12
_KNOWN_FILES = "a .log, .index, .timeindex, .txnindex or .snapshot file, or leader-epoch-checkpoint"


@click.command("dump-log", cls=Tool)
@click.option("--files", metavar="FILE,...", required=True, help="The files to dump.")
@click.option("--print-data-log", is_flag=True, help="Print keys and values of records.")
@click.option("--deep-iteration", is_flag=True, help="Print each record without key and value.")
@click.option("--skip-record-metadata", is_flag=True, help="Print only keys and values of records.")
@click.option("--key-decoder-class", metavar="NAME", default="StringDeserializer", help="The key decoder.")
@click.option("--value-decoder-class", metavar="NAME", default="StringDeserializer", help="The value decoder.")
@click.option("--offsets-decoder", is_flag=True, help="Decode records of __consumer_offsets.")
@click.option("--transaction-log-decoder", is_flag=True, help="Decode records of __transaction_state.")
@click.option("--verify-index-only", is_flag=True, help="Print only errors of indexes.")
@click.option("--index-sanity-check", is_flag=True, help="Check indexes as a broker does at startup.")
@click.option("--max-bytes", type=click.IntRange(min=0), default=2**31 - 1, metavar="N", help="Stop after N bytes.")
@click.option("--max-message-size", type=int, default=5_242_880, metavar="N", hidden=True)
@json_option
def dump_log(
    files: str,
    print_data_log: bool,
    deep_iteration: bool,
    skip_record_metadata: bool,
    key_decoder_class: str,
    value_decoder_class: str,
    offsets_decoder: bool,
    transaction_log_decoder: bool,
    verify_index_only: bool,
    index_sanity_check: bool,
    max_bytes: int,
    max_message_size: int,  # noqa: ARG001
    as_json: bool,
) -> int:
    """Print the contents of log segments, indexes and snapshots."""
    if offsets_decoder and transaction_log_decoder:
        raise click.UsageError("Expected at most one of --offsets-decoder and --transaction-log-decoder")
    content: Content = Content(_decoder(key_decoder_class), _decoder(value_decoder_class))
    if offsets_decoder:
        content = InternalContent(internal_records.group_key, _group_value)
    elif transaction_log_decoder:
        content = InternalContent(internal_records.transaction_key, _transaction_value)
    shows_content = print_data_log or offsets_decoder or transaction_log_decoder
    print_line: PrintLine = _print_json_line if as_json else _print_text_line
    problems = 0
    for name in files.split(","):
        path = Path(name.strip())
        _check_readable(path)
        print_line(f"Dumping {path}", {"file": str(path)})
        if path.suffix == ".log":
            log = LogDump(path, print_line, content if shows_content else None, deep_iteration, skip_record_metadata)
            problems += log.run(max_bytes)
        elif path.suffix in (".index", ".timeindex"):
            problems += _dump_index(path, print_line, verify_index_only, index_sanity_check)
        elif path.suffix == ".txnindex":
            _dump_transactions(path, print_line)
        elif path.suffix == ".snapshot":
            _dump_producers(path, print_line)
        elif path.name == "leader-epoch-checkpoint":
            _dump_epochs(path, print_line)
        else:
            click.echo(f"{path} is not a file of a log: expected the name of {_KNOWN_FILES}", err=True)
            problems += 1
    return 1 if problems else 0


def _check_readable(path: Path) -> None:
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise Failure(f"Cannot read {path}: {error.strerror}") from None
    if not path.is_file():
        raise Failure(f"Cannot read {path}: not a regular file")


def _decoder(name: str) -> Callable[[bytes], bytes]:
    return deserializer(
        name.replace("StringDecoder", "StringDeserializer").replace("DefaultDecoder", "BytesDeserializer")
    )


def _print_text_line(text: str, _: dict[str, Any]) -> None:
    click.echo(text)


def _print_json_line(_: str, document: dict[str, Any]) -> None:
    click.echo(json.dumps(document, ensure_ascii=False, default=str))


class Content:
    """Decodes keys and values for printing."""

    def __init__(self, key: Callable[[bytes], bytes] = bytes, value: Callable[[bytes], bytes] = bytes):
        self._key, self._value = key, value

    def show(self, key: bytes | None, value: bytes | None, offset: int) -> dict[str, str]:  # noqa: ARG002
        texts = {}
        if key is not None:
            texts["key"] = self._key(key).decode(errors="replace")
        if value is not None:
            texts["payload"] = self._value(value).decode(errors="replace")
        return texts


Decoded = tuple[int, dict[str, Any]]
"""A version or type, and the decoded fields."""


def _json_of(kind: str, decoded: Decoded) -> str:
    return json.dumps({kind: str(decoded[0]), "data": decoded[1]}, separators=(",", ":"), ensure_ascii=False)


class InternalContent(Content):
    """Decodes records of internal topics.

    As in Kafka's tool, an error of one record is printed in its place. A record without a key is not from such a topic.
    """

    def __init__(
        self, read_key: Callable[[bytes], Decoded | None], read_value: Callable[[dict[str, Any], bytes], Decoded]
    ) -> None:
        super().__init__()
        self._read_key, self._read_value = read_key, read_value

    def show(self, key: bytes | None, value: bytes | None, offset: int) -> dict[str, str]:
        if key is None:
            raise ValueError("The record has no key, so it is not a record of this internal topic")
        try:
            decoded_key = self._read_key(key)
            if decoded_key is None:
                return {
                    "key": f"Unknown record type {int.from_bytes(key[:2], signed=True)} at offset {offset}, skipping."
                }
            payload = "<DELETE>" if value is None else _json_of("version", self._read_value(decoded_key[1], value))
        except (HeadraceError, struct.error, ValueError) as error:
            return {"key": f"Error at offset {offset}, skipping. {sentence(error)}"}
        return {"key": _json_of("type", decoded_key), "payload": payload}


def _group_value(key: dict[str, Any], value: bytes) -> Decoded:
    return (internal_records.offset_value if "topic" in key else internal_records.group_value)(value)


def _transaction_value(key: dict[str, Any], value: bytes) -> Decoded:
    return internal_records.transaction_value(key["transactionalId"], value)


class LogDump:
    """Dumps a log segment batch by batch."""

    def __init__(self, path: Path, print_line: PrintLine, content: Content | None, deep: bool, skip_metadata: bool):
        self._path, self._print_line = path, print_line
        self._content, self._deep, self._skip_metadata = content, deep, skip_metadata

    def run(self, max_bytes: int) -> int:
        """Returns the number of invalid batches."""
        if not self._path.stem.isdigit():
            raise Failure(f"{self._path}: expected the base offset as file name, such as {0:020d}.log")
        self._print_line(f"Log starting offset: {int(self._path.stem)}", {"log_starting_offset": int(self._path.stem)})
        invalid_batches = position = 0
        size = self._path.stat().st_size
        # The progress line must not mix with the output on the same terminal.
        with Progress("bytes", min(size, max_bytes), shown=False if is_terminal() else None) as progress:
            for position, batch in _batches(self._path, max_bytes):
                progress.add(position - progress.done)
                invalid_batches += not self._dump(batch, position)
                position += batch.size_in_bytes
        if position < size and size <= max_bytes:
            text = f"Found {size - position} invalid bytes at the end of {self._path.name}"
            self._print_line(text, {"invalid_bytes": size - position})
            return invalid_batches + 1
        return invalid_batches

    def _dump(self, batch: RecordBatch, position: int) -> bool:
        try:
            batch.check_crc()
            is_valid = True
        except HeadraceError:
            is_valid = False
        timestamp_name = "LogAppendTime" if batch.is_log_append_time else "CreateTime"
        horizon = batch.delete_horizon_ms
        fields: dict[str, Any] = {
            "baseOffset": batch.base_offset,
            "lastOffset": batch.last_offset,
            "count": batch.count,
            "baseSequence": batch.base_sequence,
            "lastSequence": batch.last_sequence,
            "producerId": batch.producer_id,
            "producerEpoch": batch.producer_epoch,
            "partitionLeaderEpoch": batch.leader_epoch,
            "isTransactional": batch.is_transactional,
            "isControl": batch.is_control,
            "deleteHorizonMs": "OptionalLong.empty" if horizon is None else f"OptionalLong[{horizon}]",
            "position": position,
            timestamp_name: batch.max_timestamp,
            "size": batch.size_in_bytes,
            "magic": batch.magic,
            "compresscodec": Compression(batch.codec).name.lower(),
            "crc": batch.crc,
            "isvalid": is_valid,
        }
        self._print_line(_fields_text(fields), fields)
        if is_valid and (self._content is not None or self._deep):
            self._dump_records(batch, timestamp_name)
        return is_valid

    def _dump_records(self, batch: RecordBatch, timestamp_name: str) -> None:
        records = batch.records()
        if batch.is_control and self._skip_metadata:
            self._print_line("", {})
            return
        for index, record in enumerate(decode_rows(records)):
            fields: dict[str, Any] = {}
            if not self._skip_metadata:
                sequence = batch.base_sequence if batch.base_sequence < 0 else (batch.base_sequence + index) % 2**31
                fields = {
                    "offset": record.offset,
                    timestamp_name: record.timestamp,
                    "keySize": -1 if record.key is None else len(record.key),
                    "valueSize": -1 if record.value is None else len(record.value),
                    "sequence": sequence,
                    "headerKeys": "[" + ",".join(name for name, _ in record.headers) + "]",
                }
            if batch.is_control:
                marker = read_marker(records)
                if marker is not None:
                    fields["endTxnMarker"] = marker.control_type.name
                    fields["coordinatorEpoch"] = marker.coordinator_epoch
            elif self._content is not None:
                fields |= self._decoded_fields(self._content, record)
            self._print_line("| " + _fields_text(fields) if fields else "", fields)

    def _decoded_fields(self, content: Content, record: Any) -> dict[str, str]:
        try:
            return content.show(record.key, record.value, record.offset)
        except Exception as error:  # user decoders may raise anything
            reason = f"{type(error).__name__}: {sentence(error)}"
            raise Failure(f"{self._path}: cannot print the record at offset {record.offset}: {reason}") from error


def _fields_text(fields: dict[str, Any]) -> str:
    return " ".join(f"{name}: {_value_text(value)}" for name, value in fields.items())


def _value_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _batches(path: Path, max_bytes: int) -> Iterator[tuple[int, RecordBatch]]:
    """Yields batches with their positions, up to the first truncated or invalid batch."""
    with open(path, "rb") as file:
        size = min(path.stat().st_size, max_bytes)
        if size == 0:
            return
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        position = 0
        while position + _OVERHEAD <= size:
            length = struct.unpack_from(">i", data, position + _SIZE_AT)[0] + _OVERHEAD
            if length <= _OVERHEAD or position + length > len(data):
                return
            # Copy the batch, so that no view of the mapping outlives the file.
            try:
                batch = RecordBatch(data[position : position + length])
            except HeadraceError as error:
                click.echo(f"{path} at {position}: {error}", err=True)
                return
            yield position, batch
            position += length


def _dump_index(path: Path, print_line: PrintLine, only_verify: bool, only_sanity: bool) -> int:
    base = int(path.stem) if path.stem.isdigit() else 0
    entry = _TIME_INDEX if path.suffix == ".timeindex" else _INDEX
    data = path.read_bytes()
    whole_entries = data[: len(data) - len(data) % entry.size]
    entries = [pair for pair in entry.iter_unpack(whole_entries) if pair != (0, 0)]
    problems = [] if len(whole_entries) == len(data) else [f"its size is not a multiple of {entry.size}"]
    if any(later[0] <= earlier[0] for earlier, later in pairwise(entries)):
        problems.append("its entries are not in ascending order")
    log = path.with_suffix(".log")
    if entry is _INDEX and log.is_file():
        problems += _compare(entries, base, log)
    if only_sanity and not data:
        print_line(f"{path} is empty.", {"empty": True})
    elif only_sanity and not problems:
        print_line(f"{path} passed sanity check.", {"sane": True})
    elif not only_verify and not only_sanity:
        for first, second in entries:
            if entry is _TIME_INDEX:
                print_line(f"timestamp: {first} offset: {base + second}", {"timestamp": first, "offset": base + second})
            else:
                print_line(f"offset: {base + first} position: {second}", {"offset": base + first, "position": second})
    for problem in problems:
        click.echo(f"{path}: {problem}", err=True)
    return len(problems)


def _compare(entries: list[tuple[int, int]], base: int, log: Path) -> list[str]:
    """Returns an error for each index entry that does not point to its batch."""
    expected = {position: base + offset for offset, position in entries}
    actual = {position: batch.last_offset for position, batch in _batches(log, 2**63 - 1) if position in expected}
    return [
        f"offset {offset} is not at position {position} of {log.name}"
        for position, offset in expected.items()
        if actual.get(position) != offset
    ]


def _dump_transactions(path: Path, print_line: PrintLine) -> None:
    data = path.read_bytes()
    if len(data) % _TXN_INDEX.size:
        raise Failure(f"{path}: its size is not a multiple of {_TXN_INDEX.size}")
    for version, producer, first, last, stable in _TXN_INDEX.iter_unpack(data):
        fields = {
            "version": version,
            "producerId": producer,
            "firstOffset": first,
            "lastOffset": last,
            "lastStableOffset": stable,
        }
        print_line(_fields_text(fields), fields)


def _dump_producers(path: Path, print_line: PrintLine) -> None:
    for entry in decode_snapshot(path, path.read_bytes()):
        open_since = entry.transaction_first_offset
        fields: dict[str, Any] = {
            "producerId": entry.producer_id,
            "producerEpoch": entry.epoch,
            "coordinatorEpoch": entry.coordinator_epoch,
            "currentTxnFirstOffset": "OptionalLong.empty" if open_since is None else f"OptionalLong[{open_since}]",
            "lastTimestamp": entry.last_timestamp,
        }
        if entry.batches:
            last = entry.batches[-1]
            fields |= {
                "firstSequence": last.base_sequence,
                "lastSequence": last.last_sequence,
                "lastOffset": last.last_offset,
                "offsetDelta": last.offset_delta,
                "timestamp": last.timestamp,
            }
        print_line(_fields_text(fields), fields)


def _dump_epochs(path: Path, print_line: PrintLine) -> None:
    for number, line in enumerate(path.read_text(errors="replace").splitlines()[2:], 3):
        try:
            epoch, offset = map(int, line.split())
        except ValueError:
            raise Failure(f"{path}, line {number}: {line!r}; expected an epoch and an offset") from None
        print_line(f"epoch: {epoch} startOffset: {offset}", {"epoch": epoch, "start_offset": offset})
