"""Parses SQL schemas (`id BIGINT, price DECIMAL(16,2), tags ARRAY<STRING>`) into Arrow schemas, without Spark.

Nullability and comments are read and ignored, as Spark's `from_json` does.
"""

import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

_TOKEN = re.compile(r"\s*(?:([A-Za-z_0-9]+)|`((?:[^`]|``)+)`|('(?:[^'\\]|\\.)*')|([<>(),:]))")
_MAX_PRECISION = 38


class SqlSchemaError(ValueError):
    """A text is not a SQL schema, or has types that are not supported. The message says what is wrong."""


@cache
def parse_sql_schema(text: str) -> "pa.Schema":
    """Returns the Arrow schema of a SQL schema."""
    import pyarrow as pa

    parser = _Parser(text)
    fields = parser.fields(end="")
    names = [field.name.lower() for field in fields]
    for name in names:
        if names.count(name) > 1:
            raise SqlSchemaError(f"column {name!r} occurs twice")
    return pa.schema(fields)


def sql_name(kind: "pa.DataType") -> str:
    """Returns the name of a type in Spark's messages, for example `decimal(16,2)`."""
    import pyarrow as pa

    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind):
        members = (f"{kind.field(i).name}:{sql_name(kind.field(i).type)}" for i in range(kind.num_fields))
        return f"struct<{','.join(members)}>"
    if pa.types.is_list(kind):
        return f"array<{sql_name(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{sql_name(kind.key_type)},{sql_name(kind.item_type)}>"
    return next(names[0].lower() for names, other in _simple_types() if other == kind)


def _simple_types() -> "list[tuple[tuple[str, ...], pa.DataType]]":
    import pyarrow as pa

    return [
        (("STRING",), pa.string()),
        (("BIGINT", "LONG"), pa.int64()),
        (("INT", "INTEGER"), pa.int32()),
        (("SMALLINT", "SHORT"), pa.int16()),
        (("TINYINT", "BYTE"), pa.int8()),
        (("BOOLEAN",), pa.bool_()),
        (("DOUBLE",), pa.float64()),
        (("FLOAT", "REAL"), pa.float32()),
        (("TIMESTAMP", "TIMESTAMP_LTZ"), pa.timestamp("us", "UTC")),
        (("DATE",), pa.date32()),
    ]


class _Parser:
    """Reads tokens from left to right. `kind` is name, quoted, text, sign, or nothing at the end."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        at = 0
        text = text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise SqlSchemaError(f"unexpected text at {text[at : at + 20]!r}")
            at = match.end()
            kind = ("name", "quoted", "text", "sign")[int(match.lastindex or 1) - 1]
            self._tokens.append((kind, match.group(int(match.lastindex or 1)).replace("``", "`")))
        self._at = 0

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("", "")

    def _take(self) -> tuple[str, str]:
        token = self._peek()
        self._at += 1
        return token

    def _is(self, *words: str) -> bool:
        """Takes the next tokens if they are these words or signs."""
        following = self._tokens[self._at : self._at + len(words)]
        if len(following) < len(words):
            return False
        for (kind, value), word in zip(following, words, strict=True):
            if kind not in ("name", "sign") or value.upper() != word:
                return False
        self._at += len(words)
        return True

    def _expect(self, sign: str) -> None:
        if not self._is(sign):
            raise SqlSchemaError(f"expected {sign!r} before {self._peek()[1]!r}")

    def fields(self, end: str) -> "list[pa.Field]":
        fields = [self._field()]
        while self._is(","):
            fields.append(self._field())
        if end:
            self._expect(end)
        elif self._peek()[0]:
            raise SqlSchemaError(f"unexpected {self._peek()[1]!r}")
        return fields

    def _field(self) -> "pa.Field":
        import pyarrow as pa

        kind, name = self._take()
        if kind not in ("name", "quoted") or (kind == "name" and name.isdigit()):
            raise SqlSchemaError(f"expected the name of a column before {name!r}")
        self._is(":")
        field = pa.field(name, self._type())
        while True:
            if self._is("NOT", "NULL"):
                continue
            if self._is("COMMENT"):
                if self._take()[0] != "text":
                    raise SqlSchemaError("expected text after COMMENT")
                continue
            return field

    def _type(self) -> "pa.DataType":
        import pyarrow as pa

        kind, name = self._take()
        name = name.upper()
        if kind != "name":
            raise SqlSchemaError(f"expected a type before {name!r}" if name else "expected a type at the end")
        for names, simple in _simple_types():
            if name in names:
                return simple
        if name in ("DECIMAL", "DEC", "NUMERIC"):
            return self._decimal()
        if name == "ARRAY":
            self._expect("<")
            element = self._type()
            self._expect(">")
            return pa.list_(element)
        if name == "MAP":
            self._expect("<")
            key = self._type()
            self._expect(",")
            value = self._type()
            self._expect(">")
            if key != pa.string():
                raise SqlSchemaError("maps must have keys of type STRING")
            return pa.map_(key, value)
        if name == "STRUCT":
            self._expect("<")
            return pa.struct([]) if self._is(">") else pa.struct(self.fields(end=">"))
        raise SqlSchemaError(f"type {name} is not supported")

    def _decimal(self) -> "pa.DataType":
        import pyarrow as pa

        precision, scale = 10, 0
        if self._is("("):
            precision = self._number()
            if self._is(","):
                scale = self._number()
            self._expect(")")
        if not 1 <= precision <= _MAX_PRECISION or scale > precision:
            raise SqlSchemaError(f"DECIMAL({precision},{scale}): expected at most {_MAX_PRECISION} digits")
        return pa.decimal128(precision, scale)

    def _number(self) -> int:
        kind, digits = self._take()
        if kind != "name" or not digits.isdigit():
            raise SqlSchemaError(f"expected a number before {digits!r}")
        return int(digits)
