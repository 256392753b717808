"""How a pipeline is to be run, and what can be wrong with that. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.pipelines.pipeline import Pipeline, PipelineError, Setting, chosen_settings

_INTERVAL = re.compile(r"\d+(\.\d+)? *(milliseconds?|seconds?|minutes?|hours?)")


@dataclass(frozen=True)
class RunSettings:
    """How a pipeline is run."""

    bootstrap_servers: str
    checkpoint: str
    """A directory: each flow keeps its own beneath. What was read and written so far is in there."""
    warehouse: str | None = None
    """The directory of tables; needed if the pipeline has any."""
    available_now: bool = False
    """Read what is there now, then end."""
    trigger: str | None = None
    """At most one batch in this time (`10 seconds`); otherwise the next begins when one ends."""
    max_rows_per_batch: int = 200_000
    """For each source of a flow."""
    write_tasks: int | None = None
    """Tasks that write to topics, of a new checkpoint; by default as many as Spark has cores. It then stays."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """The pipeline's settings that are to differ from their defaults."""
    client: Mapping[str, str] = field(default_factory=dict)
    """Client settings for all sources and sinks, such as `security.protocol`."""
    source_options: Mapping[str, str] = field(default_factory=dict)
    """Options of `format("headrace")` for all sources."""

    def spark_options(self) -> dict[str, str]:
        """The servers and client settings as options of the format."""
        client = {f"kafka.{name}": value for name, value in self.client.items()}
        return {**client, "kafka.bootstrap.servers": self.bootstrap_servers}


def check_run(pipeline: Pipeline, settings: RunSettings) -> dict[str, Setting]:
    """What can be told to be wrong before anything is started; returns the pipeline's settings for this run."""
    if pipeline.tables and settings.warehouse is None:
        names = ", ".join(table.name for table in pipeline.tables)
        raise PipelineError(
            f"pipeline {pipeline.name} writes tables ({names}): give a warehouse directory (--warehouse)"
        )
    if settings.trigger is not None and not _INTERVAL.fullmatch(settings.trigger.strip()):
        raise PipelineError(f"trigger {settings.trigger!r}: expected a number and a unit, as '500 milliseconds'")
    return chosen_settings(pipeline, settings.settings)
