"""The subject of a certificate as text, exactly as Java's `X500Principal.getName()` writes it (RFC 2253).

    CN=alice,OU=sales,O=Example\\, Inc.,C=DE

ACLs name these principals, so each character matters:

- The most special part comes first. Parts of one level are joined by `+`.
- Only CN, C, L, ST, O, OU, DC, UID and STREET have names. Others are `1.2.840.113549.1.9.1=#1605...`: OID, and DER as
  hexadecimal digits.
- `,=+<>#;"\\` get a backslash, and so do spaces at the start and at the end.

    Certificate: SEQUENCE of a SEQUENCE: [0] version, serial, algorithm, issuer, validity, subject, key, [3] extensions
"""

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.common.errors import HeadraceError

__all__ = ["CertificateNames", "InvalidCertificateError", "certificate_names"]

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_ENCODINGS = {
    0x0C: "utf-8",
    0x13: "ascii",
    0x14: "latin-1",
    0x16: "ascii",
    0x1B: "ascii",
    0x1C: "utf-32-be",
    0x1E: "utf-16-be",
}
"""The types of strings: UTF8, Printable, T61, IA5, General, Universal, BMP."""
_ESCAPED = frozenset(',=+<>#;"\\')
_ALTERNATIVE_NAMES = "2.5.29.17"
_SEQUENCE, _SET, _OID, _VERSION, _EXTENSIONS = 0x30, 0x31, 0x06, 0xA0, 0xA3


class InvalidCertificateError(HeadraceError):
    """A certificate cannot be read."""


@dataclass(frozen=True, slots=True)
class CertificateNames:
    """The names of a certificate's owner."""

    subject: str
    alternative_names: frozenset[bytes]
    """The names of the extension subjectAltName, as DER."""


def certificate_names(certificate: bytes) -> CertificateNames:
    """Reads the names of a certificate in DER. Raises InvalidCertificateError."""
    try:
        fields = list(_items(_content(next(_items(_content(certificate, _SEQUENCE)))[1], _SEQUENCE)))
        if fields[0][0] == _VERSION:
            fields = fields[1:]
        extensions = next((item for tag, item in fields if tag == _EXTENSIONS), b"")
        return CertificateNames(_subject_text(fields[4][1]), frozenset(_alternative_names(extensions)))
    except (IndexError, StopIteration, UnicodeError, ValueError) as error:
        raise InvalidCertificateError(f"a certificate cannot be read: {error}") from error


def _subject_text(name: bytes) -> str:
    levels: list[str] = []
    for _, level in _items(_content(name, _SEQUENCE)):
        attributes = [_attribute(attribute) for _, attribute in _items(_content(level, _SET))]
        levels.append("+".join(attributes))
    return ",".join(reversed(levels))


def _attribute(attribute: bytes) -> str:
    (_, oid), (tag, value) = _items(_content(attribute, _SEQUENCE))
    keyword = _oid(oid)
    encoding = _ENCODINGS.get(tag)
    if keyword not in _KEYWORDS or encoding is None:
        return f"{_KEYWORDS.get(keyword, keyword)}=#{value.hex()}"
    return f"{_KEYWORDS[keyword]}={_escape(_content(value, tag).decode(encoding))}"


def _escape(text: str) -> str:
    first = next((index for index, char in enumerate(text) if char not in " \r"), len(text))
    last = next((index for index in range(len(text) - 1, -1, -1) if text[index] not in " \r"), -1)
    escaped: list[str] = []
    for index, char in enumerate(text):
        if char == "\0":
            escaped.append("\\00")
        elif char in _ESCAPED or not first <= index <= last:
            escaped.append("\\" + char)
        else:
            escaped.append(char)
    return "".join(escaped)


def _alternative_names(extensions: bytes) -> Iterator[bytes]:
    if not extensions:
        return
    for _, extension in _items(_content(_content(extensions, _EXTENSIONS), _SEQUENCE)):
        parts = list(_items(_content(extension, _SEQUENCE)))
        if _oid(parts[0][1]) == _ALTERNATIVE_NAMES:
            value = _content(parts[-1][1])  # an OCTET STRING
            yield from (name for _, name in _items(_content(value, _SEQUENCE)))


# ---- DER


def _items(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields the tag and the whole encoding of each item."""
    start = 0
    while start < len(data):
        _, end = _bounds(data, start)
        yield data[start], data[start:end]
        start = end


def _content(item: bytes, tag: int | None = None) -> bytes:
    """Returns the content of one item, without its tag and length."""
    if tag is not None and item[0] != tag:
        raise ValueError(f"a DER item has the tag {item[0]:#x}, expected {tag:#x}")
    start, end = _bounds(item, 0)
    return item[start:end]


def _bounds(data: bytes, start: int) -> tuple[int, int]:
    """Returns where the content of the item at `start` begins and ends."""
    size = data[start + 1]
    begin = start + 2
    if size & 0x80:
        count = size & 0x7F
        size = int.from_bytes(data[begin : begin + count])
        begin += count
    if begin + size > len(data):
        raise ValueError("a DER item is longer than its container")
    return begin, begin + size


def _oid(item: bytes) -> str:
    content = _content(item, _OID)
    numbers: list[int] = []
    value = 0
    for byte in content:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    top = min(numbers[0] // 40, 2)
    return ".".join(map(str, (top, numbers[0] - 40 * top, *numbers[1:])))
