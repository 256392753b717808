"""Parses the rows of a database table by its SQL schema, and writes them with the types of the schema. No Spark import.

Tables with types that compiled code does not know are parsed row by row in Python, which takes some 100 µs per row.
"""

from typing import TYPE_CHECKING

from headrace.pipelines.json_columns import can_read, can_write, json_members, read_json
from headrace.pipelines.json_rows import ObjectReader, Row, has_value, write_json, write_plain
from headrace.pipelines.pipeline import PipelineError
from headrace.pipelines.sql_schema import SqlSchemaError, parse_sql_schema, sql_name
from headrace.shop.routes import check_columns

if TYPE_CHECKING:
    import pyarrow as pa


class TableRows:
    """The rows of one table."""

    def __init__(self, table: str, columns: str) -> None:
        import pyarrow as pa

        try:
            self._schema = parse_sql_schema(columns)
        except SqlSchemaError as error:
            raise PipelineError(
                f"routes, table {table}: columns {columns!r} are not a SQL schema (id BIGINT, name STRING): {error}"
            ) from error
        check_columns(table, self._schema.names)
        self._reader = ObjectReader(self._schema, database_times=True)
        is_flat = not any(pa.types.is_nested(kind) for kind in self._schema.types)
        self._is_compiled = is_flat and can_read(self._schema) and can_write(self._schema)

    def members(self, texts: "pa.StringArray") -> "tuple[pa.BinaryArray, dict[int, str]]":
        """Returns the rows as JSON members, and why a row is invalid, by its number."""
        if self._is_compiled:
            rows = read_json(texts, self._schema, self._read_unusual, database_times=True)
            return json_members({name: rows.columns.field(name) for name in self._schema.names}), rows.invalid
        return self._read_all(texts)

    def _read_all(self, texts: "pa.StringArray") -> "tuple[pa.BinaryArray, dict[int, str]]":
        import pyarrow as pa

        members, invalid = [], {}
        for number, text in enumerate(texts.to_pylist()):
            row = self._read(text)
            if isinstance(row, str):
                invalid[number] = row
                members.append(b"")
            else:
                content = write_json(row, self._schema)[1:-1]
                members.append(b"," + content if content else b"")
        return pa.array(members, pa.binary()), invalid

    def _read_unusual(self, value: bytes) -> bytes | str:
        row = self._read(value.decode())
        return row if isinstance(row, str) else write_plain(row, self._schema)

    def _read(self, text: str) -> Row | str:
        """Returns a row, or which column does not fit."""
        row, fits = self._reader.read(text)
        if fits and row is not None:
            return row
        for field in self._schema:
            if (row is None or row.get(field.name) is None) and has_value(text, *field.name.split(".")):
                return f"data.{field.name} is not {sql_name(field.type)}"
        return "a column of data has a wrong type"
