"""Dates and timestamps in JSON text, as Spark's `from_json` reads them and `to_json` writes them.

Timestamps are microseconds and dates are days since 1970, in UTC. Any year of the Gregorian calendar is valid, so
Python's `datetime` cannot represent all of them.

Spark also reads times without a date, which then mean today, and names of time zones (`Europe/Berlin`). Both are
rejected here: their meaning changes.

Pure Python, no state.
"""

import re
from calendar import monthrange
from datetime import date

__all__ = ["parse_database_time", "parse_date", "parse_time", "write_date", "write_time"]

_INT64 = 1 << 63
_MICROS = 1_000_000
_DAY = 86_400
_MAX_ZONE = 18 * 3600
_PADDING = "".join(map(chr, range(33))) + "\x7f"
"""What Spark trims: spaces and control characters."""
_DATABASE_TIME = re.compile(
    r"(\d{4}|\+\d{5,10}|-(?!0+-)\d{4,10})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?(?:\.(\d{1,3}))?", re.ASCII
)
_TIME = re.compile(
    r"([+-]?\d{4,6})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T](\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?(.*))?)?)?)?)?",
    re.ASCII | re.DOTALL,
)
_ZONE = re.compile(
    r" *(?:Z|(?:UTC|GMT|UT)?(?:([+-])(\d{1,2})(?::(\d{1,2})(?::(\d\d))?|(\d\d)(\d\d)?)?)?|(?:UTC|GMT|UT))", re.ASCII
)
_DATE = re.compile(r"([+-]?\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.ASCII | re.DOTALL)
_WHOLE = re.compile(r"[+-]?\d+")


def parse_database_time(text: str) -> int | None:
    """Reads the format of databases, `2026-01-31 23:59:59` with up to six decimals. Returns None for anything else."""
    match = _DATABASE_TIME.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    fractions = [part.ljust(6, "0") for part in match.groups()[6:] if part is not None]
    if len(set(fractions)) > 1:
        return None
    return _micros(_days_of(year, month, day), hour, minute, second, int(fractions[0] if fractions else 0))


def parse_time(text: str) -> int | None:
    """Reads ISO 8601 as Spark does: `2026-01-31T23:59:59.5+01:00`, also shorter and with one digit per part."""
    match = _TIME.fullmatch(text.strip(_PADDING))
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    shift = _zone_seconds(zone or "")
    if shift is None:
        return None
    micros = int((fraction or "")[:6].ljust(6, "0"))
    days = _days_of(int(year), int(month or 1), int(day or 1))
    return _micros(days, int(hour or 0), int(minute or 0), int(second or 0), micros, shift)


def _zone_seconds(zone: str) -> int | None:
    """Returns the difference of a time zone to UTC, or None if it has a name or is too large."""
    match = _ZONE.fullmatch(zone)
    if match is None:
        return None
    sign, hours, minutes, seconds, more_minutes, more_seconds = match.groups()
    minute, second = int(minutes or more_minutes or 0), int(seconds or more_seconds or 0)
    shift = int(hours or 0) * 3600 + minute * 60 + second
    if minute > 59 or second > 59 or shift > _MAX_ZONE:
        return None
    return -shift if sign == "-" else shift


def _micros(days: int | None, hour: int, minute: int, second: int, micros: int, shift: int = 0) -> int | None:
    if days is None or hour > 23 or minute > 59 or second > 59:
        return None
    total = (days * _DAY + hour * 3600 + minute * 60 + second - shift) * _MICROS + micros
    return total if -_INT64 <= total < _INT64 else None


def parse_date(text: str) -> int | None:
    match = _DATE.fullmatch(text.strip())
    if match is not None:
        year, month, day = (int(part or 1) for part in match.groups())
        days = _days_of(year, month, day)
        if days is not None:
            return days
    if _WHOLE.fullmatch(text) and -(1 << 31) <= int(text) < 1 << 31:
        return int(text)  # days since 1970
    return None


def _days_of(year: int, month: int, day: int) -> int | None:
    """Returns the days since 1970, or None if there is no such date. Any year has the same calendar 400 years later."""
    if not 1 <= month <= 12:
        return None
    cycles, year_of_cycle = divmod(year - 2000, 400)
    if not 1 <= day <= monthrange(2000 + year_of_cycle, month)[1]:
        return None
    return cycles * 146_097 + date(2000 + year_of_cycle, month, day).toordinal() - date(1970, 1, 1).toordinal()


def write_date(days: int) -> str:
    cycles, day = divmod(days + date(1970, 1, 1).toordinal() - date(2000, 1, 1).toordinal(), 146_097)
    calendar = date.fromordinal(date(2000, 1, 1).toordinal() + day)
    year = calendar.year + cycles * 400
    sign = "+" if year > 9999 else "-" if year < 0 else ""
    return f"{sign}{abs(year):04d}-{calendar.month:02d}-{calendar.day:02d}"


def write_time(micros: int) -> str:
    days, rest = divmod(micros, _DAY * _MICROS)
    seconds, fraction = divmod(rest, _MICROS)
    time = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction // 1000:03d}Z"
    return f"{write_date(days)}T{time}"
