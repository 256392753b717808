"""The settings of a run, and the checks that need no Spark. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.pipelines.pipeline import Pipeline, PipelineError, Setting, resolve_settings

_INTERVAL = re.compile(r"\d+(\.\d+)? *(milliseconds?|seconds?|minutes?|hours?)")


@dataclass(frozen=True)
class RunSettings:
    """How to run a pipeline."""

    bootstrap_servers: str
    checkpoint: str
    """The directory of all checkpoints; each flow has its own beneath it. It stores how far the flow has read and
    written."""
    warehouse: str | None = None
    """The directory of tables; required if the pipeline writes tables."""
    available_now: bool = False
    """Process the records that exist now, then stop."""
    trigger: str | None = None
    """The minimum time between two batches (`10 seconds`). By default the next batch starts when the last one ends."""
    max_rows_per_batch: int = 200_000
    """The maximum number of rows per batch, for each source of a flow."""
    write_tasks: int | None = None
    """The number of tasks that write to topics. It is fixed when a checkpoint is created; default: the number of
    Spark's cores."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Values for the pipeline's settings."""
    client: Mapping[str, str] = field(default_factory=dict)
    """Client configs for all sources and sinks, such as `security.protocol`."""
    source_options: Mapping[str, str] = field(default_factory=dict)
    """Options of `format("headrace")` for all sources."""
    publish_status: bool = True
    """Publish the status of the flows to the topic `__headrace_pipelines`, where the console finds it."""

    def spark_options(self) -> dict[str, str]:
        """Returns the bootstrap servers and client configs as options of the format."""
        client = {f"kafka.{name}": value for name, value in self.client.items()}
        return {**client, "kafka.bootstrap.servers": self.bootstrap_servers}


def check_run(pipeline: Pipeline, settings: RunSettings) -> dict[str, Setting]:
    """Checks the settings before anything starts. Returns the pipeline's settings for this run."""
    if pipeline.tables and settings.warehouse is None:
        names = ", ".join(table.name for table in pipeline.tables)
        raise PipelineError(
            f"pipeline {pipeline.name} writes tables ({names}): a warehouse directory is required (--warehouse)"
        )
    if settings.trigger is not None and not _INTERVAL.fullmatch(settings.trigger.strip()):
        raise PipelineError(
            f"invalid trigger {settings.trigger!r}: expected a number and a unit, for example '500 milliseconds'"
        )
    return resolve_settings(pipeline, settings.settings)
