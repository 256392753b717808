"""The tokens of a JSON text as Spark's parser (Jackson) sees them, and JSON text as Jackson writes it. Slow and exact.

Three sets of rules:

    FROM_JSON   `from_json`: also single quotes, and NaN and infinite numbers
    PATH        `get_json_object`: also single quotes, and control characters in strings
    STRICT      `try_parse_json`: none of these, no repeated field, no half of a surrogate pair

All read one value and ignore the text behind it, and limit the depth and the length of names and numbers.

Pure Python, no state.
"""

import re
from decimal import Decimal
from enum import IntEnum
from typing import Any, NamedTuple

_MAX_DEPTH = 1000
_MAX_NAME = 50_000
_MAX_NUMBER = 1000
_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")
_NO_NUMBER = re.compile(r"NaN|Infinity|[+-]INF|[+-]Infinity")
_PLAIN_TEXT = {quote: re.compile(rf"[^{quote}\\\x00-\x1f]*") for quote in ('"', "'")}
_ANY_TEXT = {quote: re.compile(rf"[^{quote}\\]*") for quote in ('"', "'")}
_HEX = re.compile(r"[0-9a-fA-F]{4}")
_SURROGATE = re.compile("[\ud800-\udfff]")
_NOT_BASIC = re.compile("[\ud800-\udfff\U00010000-\U0010ffff]")
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_TO_ESCAPE = re.compile('["\\\\\x00-\x1f]')
_WRITTEN = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


class Rules(IntEnum):
    """Whose rules a text must follow."""

    FROM_JSON = 1
    PATH = 2
    STRICT = 3


class NotJson(Exception):
    """The text does not begin with a JSON value."""


class Kind(IntEnum):
    """The kinds of tokens."""

    START_OBJECT = 1
    END_OBJECT = 2
    START_ARRAY = 3
    END_ARRAY = 4
    FIELD_NAME = 5
    STRING = 6
    INTEGER = 7
    FLOAT = 8
    TRUE = 9
    FALSE = 10
    NULL = 11


class Token(NamedTuple):
    """A token. `name`: the field that it belongs to; None in arrays and at the top."""

    kind: Kind
    name: str | None
    value: Any = None
    """The text of names and strings, the number of an integer, the digits of a float."""


def tokenize(text: str, rules: Rules = Rules.FROM_JSON) -> list[Token]:
    """Returns the tokens of the first JSON value of a text; an empty list if there is only white space. Raises
    `NotJson`."""
    return _Tokenizer(text, rules).run()


def is_strict_json(text: str) -> bool:
    """Returns whether a text begins with a JSON value by the strict rules."""
    try:
        return bool(tokenize(text, Rules.STRICT))
    except NotJson:
        return False


def is_single_json_value(text: str) -> bool:
    """Returns whether a text is exactly one JSON value by the strict rules, and may be the element of a list."""
    tokenizer = _Tokenizer(f"[{text}]", Rules.STRICT)
    try:
        tokens = tokenizer.run()
    except NotJson:
        return False
    return len(tokens) > 2 and tokenizer.is_at_end and write_tokens(tokens, 1)[1] == len(tokens) - 2


class _Tokenizer:
    def __init__(self, text: str, rules: Rules) -> None:
        self._text = text
        self._strict = rules == Rules.STRICT
        self._has_odd_numbers = rules == Rules.FROM_JSON
        self._plain_text = _ANY_TEXT if rules == Rules.PATH else _PLAIN_TEXT
        self._at = 0
        self._tokens: list[Token] = []

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._text)

    def run(self) -> list[Token]:
        if self._next() == "":
            return []
        opened: list[tuple[str, str | None, set[str]]] = []
        """The open objects and lists: the closing bracket, the name of their field, and the names in an object."""
        name: str | None = None
        while True:
            character = self._next()
            if character in ("{", "["):
                self._at += 1
                self._add(Kind.START_OBJECT if character == "{" else Kind.START_ARRAY, name)
                opened.append(("}" if character == "{" else "]", name, set()))
                if len(opened) > _MAX_DEPTH:
                    raise NotJson
                name = None
                if self._next() != opened[-1][0]:
                    if character == "{":
                        name = self._name(opened[-1][2])
                    continue
            else:
                self._scalar(character, name, is_top=not opened)
            while opened:  # after a value
                closing, outer, names = opened[-1]
                character = self._next()
                self._at += 1
                if character == closing:
                    opened.pop()
                    name = outer
                    self._add(Kind.END_OBJECT if closing == "}" else Kind.END_ARRAY, name)
                elif character == ",":
                    name = self._name(names) if closing == "}" else None
                    break
                else:
                    raise NotJson
            else:
                return self._tokens

    def _add(self, kind: Kind, name: str | None, value: Any = None) -> None:
        self._tokens.append(Token(kind, name, value))

    def _next(self) -> str:
        """Returns the next character that is not white space, or nothing at the end."""
        self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
        return self._text[self._at : self._at + 1]

    def _name(self, names: set[str]) -> str:
        quote = self._next()
        name = self._string(quote)
        if len(name.encode("utf-16-le", "surrogatepass")) > _MAX_NAME * 2 or self._next() != ":":
            raise NotJson
        self._at += 1
        if self._strict:
            if name in names:
                raise NotJson
            names.add(name)
        self._add(Kind.FIELD_NAME, name, name)
        return name

    def _string(self, quote: str) -> str:
        if quote != '"' and (quote != "'" or self._strict):
            raise NotJson
        parts: list[str] = []
        self._at += 1
        while True:
            plain = self._plain_text[quote].match(self._text, self._at)
            assert plain is not None
            parts.append(plain.group())
            self._at = plain.end()
            stop = self._text[self._at : self._at + 1]
            self._at += 1
            if stop == quote:
                break
            if stop != "\\":
                raise NotJson
            parts.append(self._escape())
        content = "".join(parts)
        if _SURROGATE.search(content):
            content = content.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
            if self._strict and _SURROGATE.search(content):
                raise NotJson
        return content

    def _escape(self) -> str:
        kind = self._text[self._at : self._at + 1]
        self._at += 1
        if kind == "u":
            digits = _HEX.match(self._text, self._at)
            if digits is None:
                raise NotJson
            self._at += 4
            return chr(int(digits.group(), 16))
        if kind == "'" and not self._strict:
            return kind
        if kind not in _ESCAPES:
            raise NotJson
        return _ESCAPES[kind]

    def _scalar(self, character: str, name: str | None, is_top: bool) -> None:
        text = self._text
        for literal, kind in (("true", Kind.TRUE), ("false", Kind.FALSE), ("null", Kind.NULL)):
            if text.startswith(literal, self._at):
                self._at += len(literal)
                if f"a{text[self._at : self._at + 1]}".isidentifier() and self._at < len(text):
                    raise NotJson
                return self._add(kind, name)
        if character in ('"', "'"):
            return self._add(Kind.STRING, name, self._string(character))
        number = _NUMBER.match(text, self._at)
        if number is not None:
            self._at = number.end()
            whole, fraction, exponent = number.groups()
            if len(whole) + len(fraction or "") + len((exponent or "").lstrip("+-")) > _MAX_NUMBER:
                raise NotJson
            self._check_end(is_top)
            if fraction is None and exponent is None:
                return self._add(Kind.INTEGER, name, int(number.group()))
            return self._add(Kind.FLOAT, name, number.group())
        no_number = None if not self._has_odd_numbers else _NO_NUMBER.match(text, self._at)
        if no_number is None:
            raise NotJson
        self._at = no_number.end()
        self._check_end(is_top)
        return self._add(Kind.FLOAT, name, no_number.group())

    def _check_end(self, is_top: bool) -> None:
        """Raises if a number at the top is not followed by white space."""
        if is_top and self._text[self._at : self._at + 1] not in ("", " ", "\t", "\n", "\r"):
            raise NotJson


def float_of(digits: str) -> float:
    """Returns the value of a float token."""
    return float(digits.replace("INF", "inf"))


def replace_surrogates(text: str) -> str:
    """Returns text as Java encodes it as UTF-8: halves of surrogate pairs become question marks."""
    return _SURROGATE.sub("?", text)


# ---- writing


def write_text(text: str) -> str:
    """Returns text as a JSON string."""
    return f'"{_TO_ESCAPE.sub(_written, text)}"'


def _written(match: re.Match[str]) -> str:
    return _WRITTEN.get(match.group()) or f"\\u{ord(match.group()):04X}"


def write_double(number: float) -> str:
    """Returns a number as Java's `Double.toString` writes it; as a string if it is not finite."""
    if number != number or number in (float("inf"), float("-inf")):
        return f'"{java_name(number)}"'
    return java_float(repr(number))


def java_name(number: float) -> str:
    return "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"


def java_float(shortest: str) -> str:
    """Returns the shortest digits of a number in Java's notation."""
    sign, digits, exponent = Decimal(shortest).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).rstrip("0") or "0"
    exponent += len(digits) - 1 if text != "0" else -exponent  # the exponent of the first digit
    minus = "-" if sign else ""
    if -3 <= exponent < 0:
        return f"{minus}0.{'0' * (-exponent - 1)}{text}"
    if 0 <= exponent < 7:
        text = text.ljust(exponent + 1, "0")
        return f"{minus}{text[: exponent + 1]}.{text[exponent + 1 :] or '0'}"
    return f"{minus}{text[0]}.{text[1:] or '0'}E{exponent}"


def write_tokens(tokens: list[Token], first: int) -> tuple[str, int]:
    """Returns the value that begins with a token as JSON text, and its last token."""
    parts: list[str] = []
    at = first
    depth = 0
    separator = ""
    while True:
        token = tokens[at]
        if token.kind in (Kind.END_OBJECT, Kind.END_ARRAY):
            depth -= 1
            parts.append("}" if token.kind == Kind.END_OBJECT else "]")
            separator = ","
        elif token.kind in (Kind.START_OBJECT, Kind.START_ARRAY):
            depth += 1
            parts += [separator, "{" if token.kind == Kind.START_OBJECT else "["]
            separator = ""
        else:
            parts += [separator, _scalar_text(token)]
            separator = ":" if token.kind == Kind.FIELD_NAME else ","
        if depth == 0:
            return "".join(parts), at
        at += 1


def _surrogates(match: re.Match[str]) -> str:
    """Returns a character outside of Unicode's basic plane as Jackson escapes it."""
    units = memoryview(match.group().encode("utf-16-le", "surrogatepass")).cast("H")
    return "".join(f"\\u{unit:04X}" for unit in units)


def _scalar_text(token: Token) -> str:
    if token.kind in (Kind.STRING, Kind.FIELD_NAME):
        return _NOT_BASIC.sub(_surrogates, write_text(token.value))
    if token.kind == Kind.INTEGER:
        return str(token.value)
    if token.kind == Kind.FLOAT:
        return write_double(float_of(token.value))
    return {Kind.TRUE: "true", Kind.FALSE: "false", Kind.NULL: "null"}[token.kind]
