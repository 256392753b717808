"""The declaration of message classes: fields with their wire types and versions.

    class PartitionProduceData(Message):
        index: int = field(INT32, "3+")
        records: Buffer | None = field(RECORDS, "3+", nullable="3+")

- One class serves all versions of its struct. If a version lacks a field, the field is not written, and has its default
  after reading.
- Wire types and versions ("3", "3-5" or "3+") are as in Kafka's message definitions. `[X]` is an array of X, and a
  message class is a nested struct.
- The metaclass turns the fields into `__slots__`. `_message` constructs the objects in C, with keyword arguments only.
- The codec compiles a class at its first use (`_program`), so importing a module of `messages` is cheap.
"""

from collections.abc import Sequence, Sized
from typing import Any, Final, TypeAlias, dataclass_transform

from headrace.common.errors import HeadraceError
from headrace.common.ids import ZERO_UUID
from headrace.common.types import Buffer
from headrace.protocol._message import MessageBase, allow_vectorcall, lay_out

__all__ = [
    "BOOL",
    "BYTES",
    "FLOAT64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "LAST_VERSION",
    "RECORDS",
    "STRING",
    "STRUCT",
    "UINT16",
    "UUID",
    "Field",
    "Message",
    "MessageType",
    "Part",
    "ProtocolError",
    "field",
    "parse_versions",
]

BOOL: Final = 0
INT8: Final = 1
INT16: Final = 2
UINT16: Final = 3
INT32: Final = 4
INT64: Final = 5
FLOAT64: Final = 6
UUID: Final = 7
STRING: Final = 8
BYTES: Final = 9
RECORDS: Final = 10
STRUCT: Final = 11

LAST_VERSION: Final = 0x7FFF

Part: TypeAlias = Buffer | Sized
"""A part of a frame: bytes, or an object with a length that the connection can send (a slice of a file)."""

_ZEROS: Final = (False, 0, 0, 0, 0, 0, 0.0, ZERO_UUID, "", b"", b"", None)


class ProtocolError(HeadraceError):
    """The bytes are not a valid message. The error message names the field, the byte and the problem."""


class TooManyElementsError(ProtocolError):
    """The arrays of a message have more elements than allowed. `elements` counts up to the array that exceeded it."""

    def __init__(self, message_name: str, elements: int):
        super().__init__(f"{message_name} has at least {elements} array elements")
        self.elements = elements


class Field:
    """A field of a message class, as declared in the class body."""

    __slots__ = ("default", "factory", "is_array", "kind", "name", "nullable", "struct", "tag", "versions")

    def __init__(self, kind: int, struct: "MessageType | None", is_array: bool, versions: str, nullable: str, tag: int):
        self.name = ""
        self.kind = kind
        self.struct = struct
        self.is_array = is_array
        self.versions = versions
        self.nullable = nullable
        self.tag = tag
        """-1 for an untagged field."""
        self.default: object = None
        self.factory: type | None = None
        """Creates the default if objects must not share it."""


def field(
    kind: "int | MessageType | Sequence[int | MessageType]",
    versions: str,
    *,
    nullable: str = "",
    tag: int = -1,
    default: object = ...,
) -> Any:
    """Declares a field. Without `default`, the field's default is the zero value of its type.

    A tagged struct that is not nullable on the wire is None if the tag is absent.
    """
    is_array = not isinstance(kind, int | MessageType)
    element = kind if isinstance(kind, int | MessageType) else kind[0]
    struct = element if isinstance(element, MessageType) else None
    declared = Field(element if isinstance(element, int) else STRUCT, struct, is_array, versions, nullable, tag)
    if default is not ...:
        declared.default = default
    elif declared.is_array:
        declared.factory = list
    elif struct is None:
        declared.default = _ZEROS[declared.kind]
    elif tag < 0:
        declared.factory = struct
    return declared


def parse_versions(text: str) -> tuple[int, int]:
    """Returns the first and last version of a range. An empty text is an empty range."""
    if not text:
        return 0, -1
    if text.endswith("+"):
        return int(text[:-1]), LAST_VERSION
    first, _, last = text.partition("-")
    return int(first), int(last or first)


class MessageType(type):
    """The metaclass of messages. Only whole messages have `versions`, `flexible` and `api_key`."""

    __fields__: tuple[Field, ...]
    __api_key__: int
    __versions__: str
    __flexible__: str

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        api_key: int = -1,
        versions: str = "",
        flexible: str = "",
    ) -> "MessageType":
        fields = tuple(value for value in namespace.values() if isinstance(value, Field))
        for key, value in [item for item in namespace.items() if isinstance(item[1], Field)]:
            value.name = key
            del namespace[key]
        namespace["__slots__"] = tuple(value.name for value in fields)
        namespace["__fields__"] = fields
        namespace["__api_key__"] = api_key
        namespace["__versions__"] = versions
        namespace["__flexible__"] = flexible
        cls = super().__new__(mcs, name, bases, namespace)
        if bases != (MessageBase,):
            if bases != (Message,):
                raise TypeError(f"{name}: Message must be the only base of a message class")
            lay_out(cls, fields)
        return cls


allow_vectorcall(MessageType)


@dataclass_transform(kw_only_default=True)
class Message(MessageBase, metaclass=MessageType):
    """The base class of all messages and nested structs."""

    def __init_subclass__(cls, *, api_key: int = -1, versions: str = "", flexible: str = "") -> None:
        """Accepts the keywords, which the metaclass uses."""
