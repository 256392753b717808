"""The environment that a log depends on."""

from dataclasses import dataclass, field

from headrace.common.background import BackgroundRunner, InlineRunner, Scheduler
from headrace.common.clock import Clock, SystemClock
from headrace.common.config import INT_MAX
from headrace.common.ids import Random, make_random
from headrace.storage.config import DEFAULT_INFLATION_RATIO, LogConfig
from headrace.storage.files import FileSystem

_ALWAYS_ALLOWED_BYTES = 16 * 1024 * 1024
"""The uncompressed size of a batch that is accepted even if `max.message.bytes` is small."""


@dataclass(frozen=True)
class LogContext:
    """The disk, clock, background runner and randomness of a log. Tests replace them."""

    files: FileSystem = field(default_factory=FileSystem)
    clock: Clock = field(default_factory=SystemClock)
    runner: BackgroundRunner = field(default_factory=InlineRunner)
    scheduler: Scheduler | None = None
    random: Random = field(default_factory=make_random)
    max_inflation_ratio: int = DEFAULT_INFLATION_RATIO

    def max_inflated_bytes(self, config: LogConfig) -> int:
        """Returns the largest uncompressed size of a batch that a producer may append."""
        return min(max(self.max_inflation_ratio * config.max_message_bytes, _ALWAYS_ALLOWED_BYTES), INT_MAX)
