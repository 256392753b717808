"""Runs Kafka's DumpLogSegments tool on log, index and snapshot files, and parses its output."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.apache_kafka.jvm import run_java

DUMP_CLASS = "org.apache.kafka.tools.DumpLogSegments"

Value = int | bool | str | None

_BATCH = re.compile(r"^(baseOffset|offset): -?\d+ .*\bisvalid: (true|false)$")
_RECORD = re.compile(
    r"^\| offset: (?P<offset>-?\d+) (?P<type>\w+): (?P<timestamp>-?\d+)"
    r" keySize: (?P<key_size>-?\d+) valueSize: (?P<value_size>-?\d+)"
    r"(?: sequence: (?P<sequence>-?\d+) headerKeys: \[(?P<headers>[^\]]*)\])?"
    r"(?: isValid: (?P<valid>\w+) crc: -?\d+)?"
    r"(?P<rest>.*)$",
    re.DOTALL,
)
_CONTENT = re.compile(r"^(?: key: (?P<key>.*?))?(?: payload: (?P<payload>.*))?$", re.DOTALL)
_FIELD = re.compile(r"(\w+): (\S+)")
_TRAILING = re.compile(r"^Found (\d+) invalid bytes at the end of ")
_ENTRY_SIZES = {".index": 8, ".timeindex": 12, ".txnindex": 34}
_TIMESTAMP_TYPES = frozenset({"CreateTime", "LogAppendTime", "NoTimestampType"})

# The tool's summary at the end: a line with a file name, then lines about that file.
_HEADINGS = {
    "Mismatches in :": "index mismatch",
    "Found timestamp mismatch in :": "timestamp mismatch",
    "Found out of order timestamp in :": "timestamp out of order",
    "The following indexed offsets are not found in :": "indexed offset not found",
}
_GAP_HEADING = "Non-consecutive offsets in "
_GAP = re.compile(r"^  (-?\d+) is followed by (-?\d+)$")
_DETAIL = re.compile(r"^ *(?:Index offset|Index timestamp|Indexed offset): ")


@dataclass(frozen=True)
class DumpProblem:
    """A problem that the tool reported, or on which it failed."""

    file: str
    kind: str
    detail: str


@dataclass(frozen=True)
class DumpRecord:
    """One record of a batch; texts are decoded as UTF-8 by the tool."""

    offset: int
    timestamp: int
    key_size: int
    value_size: int
    sequence: int | None
    header_keys: tuple[str, ...]
    key: str | None
    payload: str | None
    control: str | None


@dataclass(frozen=True)
class DumpBatch:
    """One batch: the printed fields, plus ``timestampType`` and ``maxTimestamp``."""

    file: str
    fields: dict[str, Value]
    records: list[DumpRecord] = field(default_factory=list)

    @property
    def first(self) -> int:
        """The base offset (of magic 2; the only offset printed for older ones)."""
        return int(self.fields.get("baseOffset", self.fields.get("offset")) or 0)

    @property
    def last(self) -> int:
        return int(self.fields.get("lastOffset", self.fields.get("offset")) or 0)


@dataclass
class DumpResult:
    """The tool's output, and the problems that it overlooks.

    *entries* holds, per file, the fields of every line of an index, snapshot or
    transaction index.  *gaps* are missing offsets inside a log file. They are normal in a compacted log and an error
    elsewhere, so they are separate from *problems*.  *padding* counts the zero entries at the
    end of an index: normal after a crash, absent after a clean shutdown.
    """

    text: str = ""
    batches: list[DumpBatch] = field(default_factory=list)
    entries: dict[str, list[dict[str, Value]]] = field(default_factory=dict)
    problems: list[DumpProblem] = field(default_factory=list)
    gaps: list[tuple[str, int, int]] = field(default_factory=list)
    padding: dict[str, int] = field(default_factory=dict)
    empty: list[str] = field(default_factory=list)
    passed_sanity: list[str] = field(default_factory=list)

    def batches_of(self, file: Path | str) -> list[DumpBatch]:
        return [batch for batch in self.batches if batch.file == str(file)]

    @property
    def records(self) -> list[DumpRecord]:
        return [record for batch in self.batches for record in batch.records]


def dump_log(
    *files: Path | str,
    deep: bool = True,
    print_data: bool = False,
    index_sanity: bool = False,
    verify_index_only: bool = False,
    extra: Sequence[str] = (),
    timeout: float = 300.0,
) -> DumpResult:
    """Runs Kafka's tool on *files* of any kind and collects its output.

    ``deep`` iterates over the records of batches, ``print_data`` also prints keys
    and payloads, ``index_sanity`` runs only the check of indexes that a broker runs at startup, ``verify_index_only``
    checks indexes without printing their entries.

    An exception ends the tool before it has read the remaining files and printed its summary; it is then run again
    without the file on which it failed. Errors that the tool ignores (an index of an odd size, an unknown magic or
    version, decreasing offsets, shown only as gaps) count as problems.
    """
    options = list(extra)
    if deep:
        options.append("--deep-iteration")
    if print_data:
        options.append("--print-data-log")
    if index_sanity:
        options.append("--index-sanity-check")
    if verify_index_only:
        options.append("--verify-index-only")

    result = DumpResult()
    remaining = []
    for name in dict.fromkeys(str(file) for file in files):
        if "," in name:
            raise ValueError(f"the tool cannot take a path with a comma: {name}")
        if Path(name).is_file():
            remaining.append(name)
        else:  # the tool ignores some kinds of missing files
            result.problems.append(DumpProblem(name, "missing", "there is no such file"))
    for name in remaining:
        _check_entries(name, result)
    # The tool truncates an offset index of an odd size to a whole number of entries.
    altered = {name: Path(name).read_bytes() for name in remaining if _is_odd(name)}
    while remaining:
        run = run_java(
            DUMP_CLASS,
            [*options, "--files", ",".join(remaining)],
            check=False,
            timeout=timeout,
        )
        sections = _split_sections(run.stdout)
        failed = run.returncode != 0 or "Exception in thread" in run.stderr
        if failed and not sections:
            result.text += run.stdout + run.stderr
            result.problems.append(DumpProblem("", "tool failed", run.stderr.strip()))
            break
        if failed:
            culprit = sections[-1][0]
            remaining.remove(culprit)
            result.problems.append(DumpProblem(culprit, "exception", run.stderr.strip()))
            sections = sections[-1:]
        result.text += "".join(f"Dumping {name}\n" + "".join(f"{line}\n" for line in lines) for name, lines in sections)
        result.text += run.stderr
        for name, lines in sections:
            _parse_section(name, lines, result)
        if not failed:
            _parse_summary(run.stderr.splitlines(), remaining, result)
            break
    for name, content in altered.items():
        Path(name).write_bytes(content)
    return result


def _is_odd(name: str) -> bool:
    path = Path(name)
    return bool(path.stat().st_size % _ENTRY_SIZES.get(path.suffix, 1))


def _check_entries(name: str, result: DumpResult) -> None:
    """Finds problems that the tool does not report in files with fixed-size entries."""
    size = _ENTRY_SIZES.get(Path(name).suffix)
    if size is None:
        return
    if _is_odd(name):
        detail = f"{Path(name).stat().st_size} bytes, not a multiple of {size}"
        result.problems.append(DumpProblem(name, "odd size", detail))
    content = Path(name).read_bytes()
    count = len(content) // size
    if size == _ENTRY_SIZES[".txnindex"]:
        versions = {content[size * each : size * each + 2] for each in range(count)}
        if versions - {b"\0\0"}:
            result.problems.append(DumpProblem(name, "unknown version", str(versions)))
        return
    used = -(-len(content.rstrip(b"\0")) // size)
    if count > used:
        result.padding[name] = count - used
    blank = bytes(size)
    for each in range(1, used):  # the tool treats such an entry as the end and stops
        if content[size * each : size * (each + 1)] == blank:
            result.problems.append(DumpProblem(name, "zero entry", f"entry {each} of {used}"))
            break


def _split_sections(text: str) -> list[tuple[str, list[str]]]:
    sections: list[tuple[str, list[str]]] = []
    for line in text.split("\n"):
        if line.startswith("Dumping "):
            sections.append((line.removeprefix("Dumping "), []))
        elif sections:
            sections[-1][1].append(line)
    return sections


def _parse_section(file: str, lines: Iterable[str], result: DumpResult) -> None:
    if Path(file).suffix in (".log", ".checkpoint"):
        _parse_log(file, lines, result)
        return
    entries = result.entries.setdefault(file, [])
    for line in lines:
        if line == f"{file} is empty.":
            result.empty.append(file)
        elif line == f"{file} passed sanity check.":
            result.passed_sanity.append(file)
        elif fields := _fields(line):
            entries.append(fields)
        elif line:
            result.problems.append(DumpProblem(file, "unexpected output", line))


def _parse_log(file: str, lines: Iterable[str], result: DumpResult) -> None:
    pending: list[str] = []  # a record's lines: a payload may contain line breaks

    def flush() -> None:
        if pending:
            record = _record("\n".join(pending))
            if record is None:
                result.problems.append(DumpProblem(file, "unexpected output", pending[0]))
            elif result.batches:
                result.batches[-1].records.append(record)
            if " isValid: false" in pending[0]:
                result.problems.append(DumpProblem(file, "invalid record", pending[0]))
            pending.clear()

    last = _base_offset(file) - 1
    for line in lines:
        if line.startswith("| "):
            flush()
            pending.append(line)
        elif _BATCH.match(line):
            flush()
            batch = DumpBatch(file, _fields(line))
            result.batches.append(batch)
            if batch.fields["isvalid"] is not True:
                result.problems.append(DumpProblem(file, "invalid batch", line))
            if batch.fields["magic"] not in (0, 1, 2):
                result.problems.append(DumpProblem(file, "unknown magic", line))
            if batch.first <= last:
                result.problems.append(DumpProblem(file, "offsets go backwards", line))
            last = batch.last
        elif _TRAILING.match(line):
            flush()
            result.problems.append(DumpProblem(file, "trailing bytes", line))
        elif line.startswith(("Log starting offset: ", "Snapshot end offset: ", "KRaft bootstrap")):
            flush()
        elif pending:
            pending.append(line)
        elif line:
            result.problems.append(DumpProblem(file, "unexpected output", line))
    if pending and not pending[-1]:  # the end of the last line, not a part of the payload
        pending.pop()
    flush()
    for batch in result.batches_of(file):
        _check_records(batch, result)


def _check_records(batch: DumpBatch, result: DumpResult) -> None:
    """Compares a batch's header with its records, if they were printed."""
    records = batch.records
    if not records:
        return
    stated = {
        "count": (batch.fields.get("count"), len(records)),
        "timestamp": (batch.fields["maxTimestamp"], max(each.timestamp for each in records)),
    }
    for name, (header, found) in stated.items():
        if header is not None and header != found:
            detail = f"batch {batch.first}: {header} in the header, {found} in the records"
            result.problems.append(DumpProblem(batch.file, f"{name} of batch", detail))
    if not (batch.first <= records[0].offset and records[-1].offset <= batch.last):
        detail = f"batch {batch.first}: records {records[0].offset} to {records[-1].offset}"
        result.problems.append(DumpProblem(batch.file, "offset of batch", detail))


def _record(text: str) -> DumpRecord | None:
    found = _RECORD.match(text)
    if found is None:
        return None
    content = _CONTENT.match(found["rest"])
    headers = found["headers"]
    return DumpRecord(
        offset=int(found["offset"]),
        timestamp=int(found["timestamp"]),
        key_size=int(found["key_size"]),
        value_size=int(found["value_size"]),
        sequence=None if found["sequence"] is None else int(found["sequence"]),
        header_keys=tuple(headers.split(",")) if headers else (),
        key=content["key"] if content else None,
        payload=content["payload"] if content else None,
        control=None if content else found["rest"].strip(),
    )


def _parse_summary(lines: Iterable[str], files: Sequence[str], result: DumpResult) -> None:
    names = {str(Path(name).absolute()): name for name in files}
    file, kind = "", ""
    for line in lines:
        heading = next((each for each in _HEADINGS if line.startswith(each)), None)
        gap = _GAP.match(line)
        if heading:
            path = line.removeprefix(heading)
            file, kind = names.get(path, path), _HEADINGS[heading]
        elif line.startswith(_GAP_HEADING):
            path = line.removeprefix(_GAP_HEADING)
            file, kind = names.get(path, path), ""
        elif gap and file:
            before, after = int(gap[1]), int(gap[2])
            if before == -1:  # the tool starts there, regardless of the file's first offset
                before = _base_offset(file) - 1
            if after > before + 1:
                result.gaps.append((file, before, after))
            elif after <= before:
                result.problems.append(DumpProblem(file, "offsets go backwards", line.strip()))
        elif kind and _DETAIL.match(line):
            result.problems.append(DumpProblem(file, kind, line.strip()))
        elif line.strip():
            path = next((name for name in files if name in line), "")
            result.problems.append(DumpProblem(path, "error", line.strip()))


def _base_offset(file: str) -> int:
    stem = Path(file).name.split(".")[0]
    return int(stem) if stem.isdigit() else 0


def _fields(line: str) -> dict[str, Value]:
    fields: dict[str, Value] = {}
    for name, text in _FIELD.findall(line):
        if name in _TIMESTAMP_TYPES:
            fields["timestampType"] = name
            name = "maxTimestamp"
        fields[name] = _value(text)
    return fields


def _value(text: str) -> Value:
    optional = re.fullmatch(r"Optional\w*\[(.*)\]", text)
    if optional:
        text = optional[1]
    if text in ("null", "OptionalLong.empty", "OptionalInt.empty", "Optional.empty"):
        return None
    if text in ("true", "false"):
        return text == "true"
    return int(text) if re.fullmatch(r"-?\d+", text) else text
