"""The definition of an Arrow flow: a function from record batches to named outputs. No Spark import.

A flow for work that needs no shuffle. `transform` gets the records of one source partition in offset order, and returns
the rows of each output as Arrow. It may be called several times for a micro-batch, with any number of records, so its
result must depend only on the records and on the partition's state.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from headrace.pipelines.pipeline import Setting, Topic

if TYPE_CHECKING:
    import pyarrow as pa


class PartitionState(Protocol):
    """The state of one source partition. Deterministic: the same calls give the same bytes."""

    def take_delta(self) -> bytes:
        """Returns what changed since the last call, or since the state was restored; nothing for no changes."""

    def apply_delta(self, delta: bytes) -> None:
        """Applies what `take_delta` of an equal state returned."""

    def snapshot(self) -> bytes:
        """Returns the whole state."""

    def restore(self, snapshot: bytes) -> None:
        """Restores a snapshot into an empty state."""

    def merge(self, other: "PartitionState") -> None:
        """Adds the state of another partition. Used when partitions are added to a topic, because keys move then."""


@dataclass
class Task:
    """The source partition and the batch that `transform` works on."""

    source: str
    topic: str
    partition: int
    batch_id: int
    settings: Mapping[str, Setting]
    state: Any = None
    figures: dict[str, int | float] = field(default_factory=dict)
    """Numbers for the metrics of the batch, summed over its tasks."""


@dataclass(frozen=True)
class ArrowFlow:
    """A flow that transforms Arrow record batches, one source partition at a time."""

    name: str
    sources: Mapping[str, Topic]
    transform: "Callable[[pa.RecordBatch, Task], Mapping[str, pa.RecordBatch | pa.Table]]"
    state: "Callable[[Task], PartitionState] | None" = None

    prepare: None = None
    output_mode: str = "append"
    ordered: bool = False

    @property
    def split(self) -> "Callable[[pa.RecordBatch, Task], Mapping[str, pa.RecordBatch | pa.Table]]":
        return self.transform
