"""The environment that a log depends on."""

from dataclasses import dataclass, field

from headrace.common.background import BackgroundRunner, InlineRunner, Scheduler
from headrace.common.clock import Clock, SystemClock
from headrace.common.ids import Random, make_random
from headrace.records import DEFAULT_MAX_INFLATED_BYTES
from headrace.storage.files import FileSystem


@dataclass(frozen=True)
class LogContext:
    """The disk, clock, background runner and randomness of a log. Tests replace them."""

    files: FileSystem = field(default_factory=FileSystem)
    clock: Clock = field(default_factory=SystemClock)
    runner: BackgroundRunner = field(default_factory=InlineRunner)
    scheduler: Scheduler | None = None
    random: Random = field(default_factory=make_random)
    max_inflated_bytes: int = DEFAULT_MAX_INFLATED_BYTES
