"""Lag in seconds: when the partition ended at a group's committed offset, from the ends that were seen.

    end offset      100        250        400      ← samples
    time            10:00:00   10:00:05   10:00:10

A group that has committed offset 325 has read what was written until about 10:00:07.5. Between two samples the end is
assumed to have grown evenly. With too many samples, every second one of the older half goes: a history reaches back
for hours, more coarsely with age. A group that is behind the first sample lags at least since then.
"""

from array import array
from bisect import bisect_right

from headrace.common.types import TopicPartition

MAX_SAMPLES = 48


class EndHistory:
    """The ends of one partition over time. Offsets and times do not decrease."""

    __slots__ = ("_offsets", "_times")

    def __init__(self) -> None:
        self._offsets = array("q")
        self._times = array("d")

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, end_offset: int, now: float) -> None:
        """Notes the end of the partition at a time, in seconds."""
        offsets, times = self._offsets, self._times
        while offsets and end_offset < offsets[-1]:
            offsets.pop()  # truncated by an unclean election, or the topic was created again
            times.pop()
        if offsets and offsets[-1] == end_offset:
            times[-1] = now  # the partition still ends there
            return
        offsets.append(end_offset)
        times.append(now)
        if len(offsets) > MAX_SAMPLES:
            half = len(offsets) // 2
            self._offsets = offsets[:half:2] + offsets[half:]
            self._times = times[:half:2] + times[half:]

    def lag_seconds(self, committed_offset: int, now: float) -> float | None:
        """Returns how far a group is behind in seconds; None without samples."""
        offsets, times = self._offsets, self._times
        if not offsets:
            return None
        if committed_offset >= offsets[-1]:
            return 0.0
        index = bisect_right(offsets, committed_offset)
        if index == 0:
            return max(0.0, now - times[0])
        share = (committed_offset - offsets[index - 1]) / (offsets[index] - offsets[index - 1])
        return max(0.0, now - (times[index - 1] + share * (times[index] - times[index - 1])))


class EndHistories:
    """The histories of the partitions that some group reads."""

    def __init__(self) -> None:
        self._histories: dict[TopicPartition, EndHistory] = {}

    def __len__(self) -> int:
        return len(self._histories)

    def add(self, tp: TopicPartition, end_offset: int, now: float) -> None:
        history = self._histories.get(tp)
        if history is None:
            history = self._histories[tp] = EndHistory()
        history.add(end_offset, now)

    def lag_seconds(self, tp: TopicPartition, committed_offset: int, now: float) -> float | None:
        history = self._histories.get(tp)
        return None if history is None else history.lag_seconds(committed_offset, now)

    def keep_only(self, tps: set[TopicPartition]) -> None:
        """Forgets all other partitions."""
        for tp in self._histories.keys() - tps:
            del self._histories[tp]
