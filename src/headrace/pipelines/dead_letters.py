"""Rows that cannot be used: parsing that tells them apart, and what is written of them. Driver only: makes expressions.

A dead letter is a record with the key of its origin and as value JSON:

    reason                            why it could not be used
    topic, partition, offset          where it came from
    timestamp                         of the record, in milliseconds
    key, value                        text; if `encoding` is "base64", the bytes are not UTF-8
    value_bytes                       the length of the value, if it was cut because it is long
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType


class Parsed(NamedTuple):
    """`good` has the source's columns and the parsed struct; `bad` the source's columns and `reason`."""

    good: "DataFrame"
    bad: "DataFrame"


def parse_json(
    frame: "DataFrame", schema: "str | StructType", *, required: Iterable[str] = (), into: str = "data"
) -> Parsed:
    """Parses the column `value` as JSON objects; tells rows that are not, or do not fit the schema, with a reason."""
    raise NotImplementedError


def dead_letter_value(reason: "Column") -> "Column":
    """The value of a dead letter, as JSON text, of a row that has the columns of a source."""
    raise NotImplementedError
