"""Parses lines of `console-producer` into records.

With parse.headers and parse.key:   h1:v1,h2:v2<tab>key<tab>value
"""

from collections.abc import Mapping
from dataclasses import dataclass

import click

from headrace.cli.common.tool import Failure

_DEFAULTS = {
    "key.separator": "\t",
    "headers.delimiter": "\t",
    "headers.separator": ",",
    "headers.key.separator": ":",
    "null.marker": "",
}
_FLAGS = ("parse.key", "parse.headers", "ignore.error")
_OTHER = ("topic",)


@dataclass(frozen=True)
class Line:
    """Key, value and headers of one record."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class LineReader:
    """A parser of lines, with the properties of Kafka's LineMessageReader."""

    def __init__(self, properties: Mapping[str, str]):
        unknown = sorted(set(properties) - {*_DEFAULTS, *_FLAGS, *_OTHER})
        if unknown:
            click.echo(f"WARNING: Ignoring unknown reader properties: {', '.join(unknown)}", err=True)
        flags = {name: _flag(properties, name) for name in _FLAGS}
        self._has_key, self._has_headers = flags["parse.key"], flags["parse.headers"]
        self._ignores_errors = flags["ignore.error"]
        texts = {name: _unescape(properties.get(name, default)).encode() for name, default in _DEFAULTS.items()}
        self._between_key, self._after_headers = texts["key.separator"], texts["headers.delimiter"]
        self._between_headers, self._in_header = texts["headers.separator"], texts["headers.key.separator"]
        self._null = texts["null.marker"]
        for name in ("key.separator", "headers.delimiter", "headers.separator", "headers.key.separator"):
            if not texts[name]:
                raise click.UsageError(f"{name} is empty; expected at least one character")
        if self._has_headers and texts["headers.delimiter"] == texts["headers.separator"]:
            raise click.UsageError("headers.delimiter and headers.separator must be different")
        if self._has_headers and texts["headers.separator"] == texts["headers.key.separator"]:
            raise click.UsageError("headers.separator and headers.key.separator must be different")
        self._number = 0

    def read(self, line: bytes) -> Line:
        """Parses a line without its line terminator."""
        self._number += 1
        rest = line
        headers: list[tuple[str, bytes | None]] = []
        key: bytes | None = None
        if self._has_headers:
            text, rest = self._cut(rest, self._after_headers, "headers.delimiter", line)
            if text and not (self._null and text == self._null):
                headers = [self._header(part, line) for part in text.split(self._between_headers)]
        if self._has_key:
            key_text, rest = self._cut(rest, self._between_key, "key.separator", line)
            key = self._or_null(key_text)
        return Line(key, self._or_null(rest), headers)

    def _cut(self, text: bytes, separator: bytes, name: str, line: bytes) -> tuple[bytes | None, bytes]:
        before, delimiter, after = text.partition(separator)
        if delimiter:
            return before, after
        if self._ignores_errors:
            return None, text
        raise self._wrong(f"has no {name} {separator.decode()!r}", line)

    def _header(self, text: bytes, line: bytes) -> tuple[str, bytes | None]:
        name, delimiter, value = text.partition(self._in_header)
        if not delimiter:
            if self._ignores_errors:
                return name.decode(errors="replace"), None
            raise self._wrong(f"has a header {text.decode(errors='replace')!r} without a value", line)
        return name.decode(errors="replace"), self._or_null(value)

    def _wrong(self, what: str, line: bytes) -> Failure:
        return Failure(f"Line {self._number} {what}: {line.decode(errors='replace')!r}")

    def _or_null(self, text: bytes | None) -> bytes | None:
        return None if text is None or (self._null and text == self._null) else text


def _flag(properties: Mapping[str, str], name: str) -> bool:
    text = properties.get(name, "false").strip().lower()
    if text not in ("true", "false"):
        raise click.UsageError(f"{name}={properties[name]}: expected true or false")
    return text == "true"


def _unescape(text: str) -> str:
    return text.replace("\\t", "\t").replace("\\n", "\n").replace("\\0", "\0")
