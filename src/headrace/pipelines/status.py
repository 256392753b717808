"""The status of a running flow, as the driver publishes it for consoles and scripts. Pure, no Spark.

The compacted topic `__headrace_pipelines` has one record per flow. Its key is `<pipeline>/<flow>`, and its value is a
JSON object with the fields of `FlowStatus`. A tombstone means that the flow should be forgotten.

Invariants:
- A value is the complete status.
- Fields are only added while `VERSION` stays the same; readers ignore unknown fields.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

STATUS_TOPIC = "__headrace_pipelines"
VERSION = 1
STARTING, RUNNING, STOPPED, FAILED = "starting", "running", "stopped", "failed"
HEARTBEAT_SECONDS = 10.0
"""A driver publishes the status of its flows at least this often."""
LOST_AFTER_SECONDS = 30.0
"""A flow whose status is older than this, and neither stopped nor failed, has lost its driver."""


@dataclass(frozen=True)
class BatchStatus:
    """A completed batch."""

    id: int = 0
    started_ms: int = 0
    duration_ms: int = 0
    rows_in: int = 0
    rows_out: Mapping[str, int] = field(default_factory=dict)
    """Rows written, by topic and table."""
    replayed: bool = False
    phases_ms: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class FlowStatus:
    """A flow of a run. Times are in milliseconds since 1970; totals begin with the run."""

    pipeline: str
    flow: str
    version: int = VERSION
    kind: str = "frames"
    """`arrow` for an `ArrowFlow`, `frames` for a `Flow`."""
    state: str = STARTING
    """`starting`, `running`, `stopped` or `failed`."""
    error: str | None = None
    """One line: why the flow failed, or the last error while it restarts."""
    restarts: int = 0
    application_id: str = ""
    run_id: str = ""
    """Spark's id of this start of the query."""
    query_id: str = ""
    """Spark's id of the query, which stays the same for a checkpoint."""
    master: str = ""
    host: str = ""
    """The host of the driver."""
    ui_url: str | None = None
    checkpoint: str = ""
    sources: Mapping[str, Any] = field(default_factory=dict)
    """By source: `topics` and `pattern`."""
    outputs: Mapping[str, Any] = field(default_factory=dict)
    """By output, without dead letters: `topics`, `tables`, and `by_row` if each row names its topic."""
    source_topics: tuple[str, ...] = ()
    output_topics: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    dead_letter_topic: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    trigger: str | None = None
    available_now: bool = False
    started_ms: int = 0
    updated_ms: int = 0
    ended_ms: int | None = None
    last_batch: BatchStatus | None = None
    batches: int = 0
    rows_in: int = 0
    rows_out: Mapping[str, int] = field(default_factory=dict)
    rows_in_per_second: float = 0.0
    rows_out_per_second: float = 0.0
    lag: int | None = None
    """Records of the source topics that the last batch left unread; None if the source does not report it."""
    dead_letters: int = 0
    dead_letters_by_reason: Mapping[str, int] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)
    """The numbers that the pipeline itself reports, summed."""

    @property
    def key(self) -> str:
        """The key of the record. Neither name contains a slash."""
        return f"{self.pipeline}/{self.flow}"

    @property
    def has_ended(self) -> bool:
        return self.state in (STOPPED, FAILED)

    def is_lost(self, now_ms: int) -> bool:
        """Returns True if the driver should have published a newer status."""
        return not self.has_ended and now_ms - self.updated_ms > LOST_AFTER_SECONDS * 1000

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), ensure_ascii=False, default=str).encode()

    @staticmethod
    def from_json(value: bytes | str) -> "FlowStatus":
        """Reads a value of the topic. Raises `ValueError` if it is no status."""
        document = json.loads(value)
        if not isinstance(document, dict) or not all(isinstance(document.get(n), str) for n in ("pipeline", "flow")):
            raise ValueError("expected a JSON object with the fields 'pipeline' and 'flow'")
        known = _known(FlowStatus, document)
        for name in ("source_topics", "output_topics", "tables"):
            known[name] = tuple(known.get(name) or ())
        if (batch := known.get("last_batch")) is not None:
            known["last_batch"] = BatchStatus(**_known(BatchStatus, batch))
        return FlowStatus(**known)


def _known(kind: type[Any], document: Mapping[str, Any]) -> dict[str, Any]:
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in document.items() if name in names}
