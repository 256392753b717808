"""The strategy of `auto.offset.reset`: where to start when there is no valid offset."""

import re

from headrace.client.consumer.partition_state import EARLIEST_OFFSET, LATEST_OFFSET, OffsetQuery
from headrace.common.errors import ConfigError

_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,9})?)S)?)?")
_BY_DURATION = "by_duration:"
_NAMES = {
    "earliest": EARLIEST_OFFSET,
    "smallest": EARLIEST_OFFSET,
    "beginning": EARLIEST_OFFSET,
    "latest": LATEST_OFFSET,
    "largest": LATEST_OFFSET,
    "end": LATEST_OFFSET,
    "none": None,
    "error": None,
}
"""Kafka's names, and the older names that librdkafka and kafka-python accept."""


class AutoOffsetResetStrategy:
    """A parsed value of `auto.offset.reset`: earliest, latest, none or by_duration:PnDTnHnMn.nS."""

    def __init__(self, text: str):
        self.text = text
        self._duration_ms = parse_duration_ms(text.removeprefix(_BY_DURATION)) if text.startswith(_BY_DURATION) else -1
        self._query = _NAMES.get(text) if self._duration_ms < 0 else None
        self.is_none = self._duration_ms < 0 and self._query is None

    def query(self, now_ms: int) -> OffsetQuery | None:
        """Returns the offset query to run at the time `now_ms`, or None if a missing offset is an error."""
        if self._duration_ms >= 0:
            return OffsetQuery("time", max(0, now_ms - self._duration_ms))
        return self._query


def parse_duration_ms(text: str) -> int:
    """Parses an ISO 8601 duration of days, hours, minutes and seconds (P3D, PT1H30M, PT0.5S)."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise ConfigError(
            f"auto.offset.reset=by_duration:{text} is not a duration: expected ISO 8601, for example P3D, PT1H30M "
            "or PT0.5S"
        )
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)
