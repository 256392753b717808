"""Consumer lag in seconds, estimated from the history of a partition's end.

    end offset      100        250        400      ← samples
    time            10:00:00   10:00:05   10:00:10

A group that has committed offset 325 at 10:00:10 has read everything that was written until about 10:00:07.5, so it
lags by 2.5 s. Between two samples the end is assumed to have grown evenly. Records before the first sample are older
than it: the lag is at least that, and grows until the group arrives in the history.

A partition without new records takes one sample: only its time moves. So a history covers as much time as its samples
cover offsets.
"""

from collections import deque

MAX_SAMPLES = 120


class OffsetHistory:
    """The ends of one partition over time. Offsets and times do not decrease."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[tuple[int, float]] = deque(maxlen=MAX_SAMPLES)
        """End offsets, with the last time at which the partition ended there."""

    def add(self, end_offset: int, now: float) -> None:
        """Notes the end of the partition at a time, in seconds."""
        samples = self._samples
        while samples and end_offset < samples[-1][0]:
            samples.pop()  # an unclean election has truncated the partition, or the topic was created again
        if samples and samples[-1][0] == end_offset:
            samples[-1] = (end_offset, now)
        else:
            samples.append((end_offset, now))

    def lag_seconds(self, committed_offset: int, now: float) -> float | None:
        """Returns how far a group is behind in seconds; None without samples."""
        samples = self._samples
        if not samples:
            return None
        if committed_offset >= samples[-1][0]:
            return 0.0
        later_offset, later_time = samples[-1]
        for offset, time in reversed(samples):
            if offset <= committed_offset:
                share = (committed_offset - offset) / (later_offset - offset)
                return max(0.0, now - (time + share * (later_time - time)))
            later_offset, later_time = offset, time
        return max(0.0, now - later_time)


class LagEstimator:
    """The histories of many partitions."""

    def __init__(self) -> None:
        self._histories: dict[tuple[str, int], OffsetHistory] = {}

    def add(self, topic: str, partition: int, end_offset: int, now: float) -> None:
        history = self._histories.get((topic, partition))
        if history is None:
            history = self._histories[topic, partition] = OffsetHistory()
        history.add(end_offset, now)

    def lag_seconds(self, topic: str, partition: int, committed_offset: int, now: float) -> float | None:
        history = self._histories.get((topic, partition))
        return None if history is None else history.lag_seconds(committed_offset, now)

    def keep_only(self, partitions: set[tuple[str, int]]) -> None:
        """Forgets all other partitions, such as those of deleted topics."""
        for key in self._histories.keys() - partitions:
            del self._histories[key]
