"""Converts a task's rows to the columns of records, grouped by topic.

Runs in tasks. Pure: record batches in, record batches out.

Invariant: rows keep their order within a topic.
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import IllegalArgumentError

__all__ = ["by_topic", "normalize"]

_HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
_TYPES = {
    "key": (pa.binary(), pa.string()),
    "value": (pa.binary(), pa.string()),
    "headers": (_HEADERS,),
    "topic": (pa.string(),),
    "partition": (pa.int32(),),
}


def normalize(batch: pa.RecordBatch, with_topic: bool) -> pa.RecordBatch:
    """Returns the columns to write, each with a type that the producer accepts without a copy."""
    columns: dict[str, pa.Array] = {}
    for name, types in _TYPES.items():
        index = batch.schema.get_field_index(name)
        if index < 0 or (name == "topic" and not with_topic):
            continue
        column = batch.column(index)
        columns[name] = column if column.type in types else column.cast(types[0])
    partitions = columns.get("partition")
    if partitions is not None:
        lowest = pc.min(partitions).as_py()
        if lowest is not None and lowest < 0:
            raise IllegalArgumentError(
                f"the column 'partition' contains {lowest}: expected 0 or more, or null to partition by key"
            )
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def by_topic(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields the rows of each topic. If `topic` is None, the column `topic` names the topic of each row."""
    if topic is not None:
        yield topic, batch
        return
    column = batch.column("topic")
    if column.null_count:
        raise IllegalArgumentError(
            "the column 'topic' is null in some rows: expected a topic in every row, or the option 'topic' for all rows"
        )
    encoded = column.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    rows = batch.drop_columns(["topic"])
    if len(names) == 1:
        yield names[0], rows
        return
    order = pc.sort_indices(encoded.indices)
    counts = {entry["values"].as_py(): entry["counts"].as_py() for entry in pc.value_counts(encoded.indices)}
    rows = rows.take(order)
    start = 0
    for number, name in enumerate(names):
        yield name, rows.slice(start, counts[number])
        start += counts[number]
