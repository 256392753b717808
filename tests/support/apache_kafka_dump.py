"""Kafka's DumpLogSegments tool: what it says about log, index and snapshot files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .apache_kafka_jvm import run_java

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
_TIMESTAMP_TYPES = frozenset({"CreateTime", "LogAppendTime", "NoTimestampType"})

# The summary the tool ends with: a line naming a file, then lines about that file.
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
    """One thing the tool found wrong, or failed at."""

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


@dataclass
class DumpResult:
    """What the tool said.

    *entries* holds, per file, the fields of every line of an index, snapshot or
    transaction index.  *gaps* are offsets that do not follow one another inside a
    log file: ordinary in a compacted log or beside an absent control batch, and a
    fault anywhere else, so they are kept apart from *problems*.
    """

    text: str = ""
    batches: list[DumpBatch] = field(default_factory=list)
    entries: dict[str, list[dict[str, Value]]] = field(default_factory=dict)
    problems: list[DumpProblem] = field(default_factory=list)
    gaps: list[tuple[str, int, int]] = field(default_factory=list)
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
    """Let Kafka examine *files* of any kind and collect everything it says of them.

    ``deep`` iterates over the records of batches, ``print_data`` also prints keys
    and payloads, ``index_sanity`` runs only the check a broker makes of indexes at
    its start, ``verify_index_only`` checks indexes without printing their entries.

    An exception ends the tool before it has examined the remaining files and
    printed its summary; it is then run again without the file that it failed at.
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
        else:  # the tool is silent about some kinds of absent files
            result.problems.append(DumpProblem(name, "missing", "there is no such file"))
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
        result.text += "".join(
            f"Dumping {name}\n" + "".join(f"{line}\n" for line in lines) for name, lines in sections
        )
        result.text += run.stderr
        for name, lines in sections:
            _parse_section(name, lines, result)
        if not failed:
            _parse_summary(run.stderr.splitlines(), remaining, result)
            break
    return result


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
            result.gaps.append((file, int(gap[1]), int(gap[2])))
        elif kind and _DETAIL.match(line):
            result.problems.append(DumpProblem(file, kind, line.strip()))
        elif line.strip():
            path = next((name for name in files if name in line), "")
            result.problems.append(DumpProblem(path, "error", line.strip()))


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
