"""Runs a pipeline: sources, checkpoints, sinks, progress, stop. Runs in the driver."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.pipelines.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class RunSettings:
    """How a pipeline is run."""

    bootstrap_servers: str
    checkpoint: str
    """A directory: each flow keeps its own beneath. What was read and written so far is in there."""
    warehouse: str | None = None
    """The directory of tables; needed if the pipeline has any."""
    available_now: bool = False
    trigger: str | None = None
    """At most one batch in this time (`10 seconds`); otherwise the next begins when one ends."""
    max_rows_per_batch: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    client: Mapping[str, str] = field(default_factory=dict)
    """Client settings for all sources and sinks, such as `security.protocol`."""
    source_options: Mapping[str, str] = field(default_factory=dict)


class Runner:
    """A pipeline that runs. `run()` is `start()`, then `wait()`; `request_stop()` may be called from anywhere."""

    def __init__(
        self,
        pipeline: Pipeline,
        spark: "SparkSession",
        settings: RunSettings,
        *,
        on_progress: Callable[[Any], None] | None = None,
    ) -> None:
        raise NotImplementedError

    def start(self) -> None: ...

    def wait(self, timeout: float | None = None) -> bool: ...

    def request_stop(self) -> None:
        """Finish the batch at hand, then stop."""

    def run(self) -> Any: ...


def run(pipeline: Pipeline, spark: "SparkSession", settings: RunSettings) -> Any:
    """Runs until the end (available now) or until it is stopped."""
