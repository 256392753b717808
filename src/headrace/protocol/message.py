"""What a message class is made of: fields with their wire type and the versions that have them.

    class PartitionProduceData(Message):
        index: int = field(INT32, "3+")
        records: Buffer | None = field(RECORDS, "3+", nullable="3+")

One class serves all versions of its struct; a field that a version lacks has its default after reading and is passed
over in writing. The metaclass turns the fields into `__slots__` and the class makes its objects in C (`_message`), with
keyword arguments only. Nothing else happens before a class is first read or written (`_codec`), so that importing a
module of `messages` stays cheap.

Wire types are those of Kafka's message definitions. `[X]` is an array of X, and a message class is a struct in place.
Versions are written as there: "3", "3-5" or "3+".
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
"""A piece of a frame: bytes, or something with a length that the connection knows how to send (a slice of a file)."""

_ZEROS: Final = (False, 0, 0, 0, 0, 0, 0.0, ZERO_UUID, "", b"", b"", None)


class ProtocolError(HeadraceError):
    """Bytes that are not the message they should be; says which field, at which byte, and what is wrong."""


class Field:
    """One field of a message class, as the class body gives it."""

    __slots__ = ("default", "factory", "is_array", "kind", "name", "nullable", "struct", "tag", "versions")

    def __init__(self, kind: int, struct: "MessageType | None", is_array: bool, versions: str, nullable: str, tag: int):
        self.name = ""
        self.kind = kind
        self.struct = struct
        self.is_array = is_array
        self.versions = versions
        self.nullable = nullable
        self.tag = tag
        """-1 for a field that is always there."""
        self.default: object = None
        self.factory: type | None = None
        """What makes the default of each object, where objects may not share one."""


def field(
    kind: "int | MessageType | Sequence[int | MessageType]",
    versions: str,
    *,
    nullable: str = "",
    tag: int = -1,
    default: object = ...,
) -> Any:
    """Declares a field. Its default is the zero of its type if none is given.

    A tagged struct that may not be null on the wire is None where the tag is absent.
    """
    is_array = not isinstance(kind, int | MessageType)
    element = kind if isinstance(kind, int | MessageType) else kind[0]
    struct = element if isinstance(element, MessageType) else None
    made = Field(element if isinstance(element, int) else STRUCT, struct, is_array, versions, nullable, tag)
    if default is not ...:
        made.default = default
    elif made.is_array:
        made.factory = list
    elif struct is None:
        made.default = _ZEROS[made.kind]
    elif tag < 0:
        made.factory = struct
    return made


def parse_versions(text: str) -> tuple[int, int]:
    """The first and last version of a range; of none (an empty text) a range that nothing lies in."""
    if not text:
        return 0, -1
    if text.endswith("+"):
        return int(text[:-1]), LAST_VERSION
    first, _, last = text.partition("-")
    return int(first), int(last or first)


class MessageType(type):
    """The class of message classes. `versions`, `flexible` and `api_key` are given for whole messages only."""

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
        namespace["__slots__"] = tuple(each.name for each in fields)
        namespace["__fields__"] = fields
        namespace["__api_key__"] = api_key
        namespace["__versions__"] = versions
        namespace["__flexible__"] = flexible
        made = super().__new__(mcs, name, bases, namespace)
        if bases != (MessageBase,):
            if bases != (Message,):
                raise TypeError(f"{name}: a message class has no other base than Message")
            lay_out(made, fields)
        return made


allow_vectorcall(MessageType)


@dataclass_transform(kw_only_default=True)
class Message(MessageBase, metaclass=MessageType):
    """The base of all messages and their nested structs."""

    def __init_subclass__(cls, *, api_key: int = -1, versions: str = "", flexible: str = "") -> None:
        """The keywords are the metaclass's."""
