"""`headrace consumer-groups --reset-offsets`: computes the new offsets of a group.

The new offsets form a plan that is printed, exported as CSV, or executed.
"""

import csv
import io
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from headrace.cli.common.tool import Failure, read_file
from headrace.common.types import TopicPartition

if TYPE_CHECKING:
    from headrace.client.admin.admin import Admin

_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")
_UNKNOWN_TOPIC = 3
Offsets = dict[TopicPartition, int]


def parse_duration(text: str) -> timedelta:
    """Parses an ISO 8601 duration: `P1DT2H3M4.5S`."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise click.UsageError(f"--by-duration {text!r}: expected an ISO 8601 duration such as PT1H30M or P7D")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    try:
        return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    except OverflowError:
        raise click.UsageError(f"--by-duration {text!r}: expected less than a billion days") from None


def parse_datetime(text: str) -> int:
    """Returns the timestamp in milliseconds, 0 for times before 1970. The default zone is UTC, as in Kafka's tool."""
    try:
        if "T" not in text:
            raise ValueError("no T")
        time = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(
            f"--to-datetime {text!r}: expected YYYY-MM-DDThh:mm:ss.sss, optionally with a zone (default: UTC)"
        ) from None
    return max(0, round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000))


def parse_topics(texts: Iterable[str]) -> dict[str, list[int] | None]:
    """Parses `events` or `events:0,2`. None means all partitions."""
    topics: dict[str, list[int] | None] = {}
    for text in texts:
        name, colon, numbers = text.partition(":")
        if not colon:
            topics[name] = None
            continue
        try:
            topics[name] = [int(part) for part in numbers.split(",")]
        except ValueError:
            raise click.UsageError(f"--topic {text!r}: expected NAME or NAME:PARTITION,...") from None
    return topics


def partitions_of(admin: "Admin", topics: Mapping[str, list[int] | None]) -> list[TopicPartition]:
    described = admin.describe_topics(list(topics), raise_errors=False)
    partitions = []
    for name, numbers in topics.items():
        error = described[name].error
        if error is not None:
            raise Failure(f"Topic {name} does not exist" if error.code == _UNKNOWN_TOPIC else f"Topic {name}: {error}")
        existing = {partition.partition for partition in described[name].partitions}
        missing = sorted(set(numbers or ()) - existing)
        if missing:
            raise Failure(f"Topic {name} has no partition {missing[0]}; its partitions are 0 to {len(existing) - 1}")
        partitions += [
            TopicPartition(name, number) for number in (numbers if numbers is not None else sorted(existing))
        ]
    return partitions


def read_plan(path: str, groups: list[str]) -> dict[str, Offsets]:
    """Reads a CSV file with `topic,partition,offset` for one group, or `group,topic,partition,offset`.

    Returns the plans of the groups that have rows. Raises a Failure if none has.
    """
    # Invalid UTF-8 makes the cell an invalid number, which is reported below.
    text = read_file(path).decode(errors="backslashreplace").replace("\0", "\\0")
    plans: dict[str, Offsets] = {}
    for number, row in enumerate(csv.reader(io.StringIO(text, newline="")), 1):
        cells = [cell.strip() for cell in row]
        if not any(cells):
            continue
        if len(cells) == 3 and len(groups) == 1:
            cells.insert(0, groups[0])
        try:
            group, topic, partition, offset = cells[0], cells[1], int(cells[2]), int(cells[3])
        except (IndexError, ValueError):
            raise Failure(
                f"{path}, line {number}: {','.join(row)!r}; expected TOPIC,PARTITION,OFFSET for one group, or "
                "GROUP,TOPIC,PARTITION,OFFSET"
            ) from None
        if group in groups:
            plans.setdefault(group, {})[TopicPartition(topic, partition)] = offset
    if not plans:
        names = ", ".join(f"'{name}'" for name in groups)
        raise Failure(f"{path} has no row for {'group' if len(groups) == 1 else 'any of the groups'} {names}")
    return plans


class Reset:
    """Computes new offsets. `flag` selects the method: `--to-earliest`, `--shift-by` and so on."""

    def __init__(self, admin: "Admin", flag: str, value: object = None):
        self._admin = admin
        self._flag, self._value = flag, value

    def plan(self, group: str, partitions: list[TopicPartition]) -> Offsets:
        from headrace.client.admin.types import OffsetSpec

        if self._flag == "--to-earliest":
            return self._list_offsets(partitions, OffsetSpec.EARLIEST)
        if self._flag == "--to-latest":
            return self._list_offsets(partitions, OffsetSpec.LATEST)
        if self._flag in ("--to-datetime", "--by-duration"):
            return self._offsets_at(partitions, self._value)  # type: ignore[arg-type]
        if self._flag == "--to-offset":
            return self._within(dict.fromkeys(partitions, self._value))  # type: ignore[arg-type]
        committed = {
            tp: committed_offset.offset
            for tp, committed_offset in self._admin.list_group_offsets({group: partitions})[group].offsets.items()
        }
        missing = [tp for tp in partitions if tp not in committed]
        if self._flag == "--shift-by":
            if missing:
                raise Failure(f"Group {group} has no committed offset for {missing[0]} to shift")
            assert isinstance(self._value, int)
            return self._within({tp: committed[tp] + self._value for tp in partitions})
        ends = self._list_offsets(missing, OffsetSpec.LATEST) if missing else {}
        return {tp: committed.get(tp, ends.get(tp, 0)) for tp in partitions}

    def within(self, plan: Offsets) -> Offsets:
        """Moves offsets into the range from log start to log end."""
        return self._within(plan)

    def _list_offsets(self, partitions: list[TopicPartition], timestamp: int) -> Offsets:
        if not partitions:
            return {}
        offsets = self._admin.list_partition_offsets(dict.fromkeys(partitions, timestamp))
        return {tp: offsets[tp].offset for tp in partitions}

    def _offsets_at(self, partitions: list[TopicPartition], time_ms: int) -> Offsets:
        from headrace.client.admin.types import OffsetSpec

        offsets = self._list_offsets(partitions, time_ms)
        late = [tp for tp, offset in offsets.items() if offset < 0]
        return {**offsets, **self._list_offsets(late, OffsetSpec.LATEST)}

    def _within(self, offsets: Offsets) -> Offsets:
        from headrace.client.admin.types import OffsetSpec

        first, last = (
            self._list_offsets(list(offsets), OffsetSpec.EARLIEST),
            self._list_offsets(list(offsets), OffsetSpec.LATEST),
        )
        in_range = {}
        for tp, offset in offsets.items():
            in_range[tp] = min(max(offset, first[tp]), last[tp])
            if in_range[tp] != offset:
                click.echo(
                    f"WARN: New offset ({offset}) of {tp} is out of range. Value will be set to {in_range[tp]}",
                    err=True,
                )
        return in_range
