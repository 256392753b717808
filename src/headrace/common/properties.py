"""Java's `.properties` files, the format of Kafka's configuration files.

    # a comment; ! also starts one
    key=value              also `key: value` and `key value`
    long=first, \\         a backslash at the end of a line continues it, without the next line's leading blanks
          second
    path=C\\:\\\\data\\u00e9   escapes: \\t \\n \\r \\f \\uXXXX; before any other character, the backslash is removed

If a key occurs twice, the last value wins.
"""

from collections.abc import Iterator
from pathlib import Path

from headrace.common.errors import ConfigError

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(path: Path | str) -> dict[str, str]:
    """Reads the keys and values of a file."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"Cannot read {path}: {error.strerror}") from error
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.decode("latin-1")  # Java's encoding for these files
    return parse_properties(text, str(path))


def parse_properties(text: str, source: str = "properties") -> dict[str, str]:
    """Parses the keys and values of a text; error messages name `source`."""
    properties: dict[str, str] = {}
    for number, line in _logical_lines(text):
        end = _end_of_key(line)
        value = line[end:].lstrip(_BLANKS)
        if value[:1] in ("=", ":"):
            value = value[1:].lstrip(_BLANKS)
        try:
            properties[_unescape(line[:end])] = _unescape(value)
        except ValueError as error:
            raise ConfigError(f"{source}, line {number}: {error}") from None
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields the number and text of each line with a key, joined with its continuation lines."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    number = 0
    while number < len(lines):
        first_number = number + 1
        line = lines[number].lstrip(_BLANKS)
        number += 1
        if not line or line[0] in "#!":
            continue
        while _is_continued(line):
            line = line[:-1]
            if number == len(lines):
                break
            line += lines[number].lstrip(_BLANKS)
            number += 1
        if line:
            yield first_number, line


def _is_continued(line: str) -> bool:
    """Returns True if the line ends with an unescaped backslash."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _end_of_key(line: str) -> int:
    position = 0
    while position < len(line):
        if line[position] == "\\":
            position += 2
            continue
        if line[position] in "=:" or line[position] in _BLANKS:
            return position
        position += 1
    return len(line)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\" or position == len(text):
            parts.append(character)
            continue
        escaped = text[position]
        position += 1
        if escaped != "u":
            parts.append(_ESCAPES.get(escaped, escaped))
            continue
        digits = text[position : position + 4]
        position += 4
        if len(digits) < 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
            raise ValueError(f"invalid escape \\u{digits}: expected four hexadecimal digits")
        parts.append(chr(int(digits, 16)))
    # Two escapes such as \ud83d\ude00 may form one character.
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
