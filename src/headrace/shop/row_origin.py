"""The last member of every DWD row: the position of its source record. No state."""

from typing import TYPE_CHECKING

from headrace.pipelines.json_columns import join_pieces, json_members

if TYPE_CHECKING:
    import pyarrow as pa


def row_origin(partition: int, offsets: "pa.Int64Array") -> "pa.BinaryArray":
    """Returns the origin of each record as a JSON member, and the end of the row's object."""
    return join_pieces(b',"src":{"p":%d' % partition, json_members({"o": offsets}), b"}}")
