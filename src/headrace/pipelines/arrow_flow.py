"""The definition of an Arrow flow: a function from the records of a source partition to rows of named outputs.

No Spark import, and pyarrow is imported only by type checkers. The function runs in Spark's Python workers, between
the fetch of the records and the transaction that writes the rows. The records never pass through the JVM:

    source partition ──> transform(record batch, task) ──> {output name: rows}
                              │
                         task.state (optional, one per source partition)

A record batch has the columns that `Topic.columns` selects, with the Arrow types of `format("headrace")`. The rows of
an output have the columns that `Pipeline` describes for `Flow.split`, without `_at` and `_seq`: rows are written in the
order in which the function returns them.

Invariants that the function must keep:
- It depends only on the records, the settings and the state. A replayed batch must give the same rows.
- It does not depend on how the records of a partition are divided into record batches.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.pipelines.pipeline import Setting, Topic

__all__ = ["ArrowFlow", "ArrowRows", "PartitionState", "Task", "Transform"]

ArrowRows: TypeAlias = "Mapping[str, pa.RecordBatch | pa.Table]"
"""Rows by output name. Other objects with Arrow's PyCapsule interface work too: frames of Polars, results of DuckDB."""


class PartitionState(Protocol):
    """What a flow remembers of the records of one source partition, for example the keys that it has seen.

    Everything must be deterministic: the same records give an equal state. The state is saved in the checkpoint of the
    flow: the delta of every batch, and from time to time a snapshot.
    """

    def take_delta(self) -> bytes:
        """Returns the changes since the last call, or since `restore` or `apply_delta`. Empty if there are none."""

    def apply_delta(self, delta: bytes) -> None:
        """Repeats the changes of a batch."""

    def snapshot(self) -> bytes:
        """Returns the whole state."""

    def restore(self, snapshot: bytes) -> None:
        """Loads a snapshot into an empty state."""

    def merge(self, other: Any) -> None:
        """Adds the state of another partition. If partitions are added to a topic, keys move to other partitions. So
        every partition then starts with the merged states of all partitions."""


@dataclass
class Task:
    """The part of a micro-batch that `transform` processes: records of one source partition."""

    source: str
    """The name of the source."""
    topic: str
    partition: int
    batch_id: int
    settings: "Mapping[str, Setting]"
    """The pipeline's settings, with the values given for this run (`--set key=value`)."""
    state: Any = None
    """The state of the source partition, or None for a flow without state."""
    shared: Any = None
    """What `ArrowFlow.shared` returned."""
    figures: dict[str, int | float] = field(default_factory=dict)
    """Numbers to add to the metrics of the batch. They are summed over all tasks."""


Transform: TypeAlias = "Callable[[pa.RecordBatch, Task], ArrowRows]"


@dataclass(frozen=True)
class ArrowFlow:
    """One streaming query of a pipeline, whose records stay in Arrow's format."""

    name: str
    sources: "Mapping[str, Topic]"
    transform: Transform
    state: "Callable[[Task], PartitionState] | None" = None
    """Returns a new, empty state for a source partition. The task has no state yet."""
    shared: "Callable[[Mapping[str, Setting]], Any] | None" = None
    """Returns something small that all tasks need, for example the content of a file. It is called once, in the driver,
    with the settings of the run. What it returns is pickled and sent to the workers."""
