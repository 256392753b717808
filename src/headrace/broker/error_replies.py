"""A reply that carries one error for everything that was asked.

Kafka's replies have places for errors at the top, or in each item that the request named, or both, and in other places
in other versions. Instead of a function for each API, the reply's shape is followed: a field `error_code` gets the
code, and a list whose items have a place for the code gets one item for each that the request's own list has, with the
fields that say which one it is.

    request   topics [ name, partitions [ partition, fetch_offset, ... ] ]
    reply     responses [ topic, partitions [ partition_index, error_code, ... ] ]
"""

from typing import Any

from headrace.protocol import APIS, ApiKey, Message, MessageType
from headrace.protocol.message import INT16, INT32, STRING, UUID, Field, parse_versions

_SAME = (
    frozenset(("partition", "partition_index", "index", "partition_id")),
    frozenset(("name", "topic", "topic_name", "user")),
)
"""Names that one thing has in requests and in replies."""

_NUMBERS = (*_SAME[0], "resource_type")
"""Numbers that say which item it is; of other fields of one name the reply's means something else."""

_ERROR_FIELDS = ("error_code", "partition_error_code")
_UNKNOWN = {"base_offset": -1, "high_watermark": -1, "node_id": -1, "port": -1}
"""Fields beside an error whose default would mean something."""


def error_reply(request: Message, version: int, code: int) -> Message:
    """The reply to a request in which everything has failed with this error."""
    response = APIS[ApiKey(type(request).__api_key__)].response
    made = response()
    _fill(made, request, version, code)
    return made


def _fill(reply: Message, asked: object, version: int, code: int) -> None:
    """Puts the code into a reply, or an item of one, that answers `asked`."""
    at_top = any(field.name in _ERROR_FIELDS and _has(field, version) for field in type(reply).__fields__)
    for field in type(reply).__fields__:
        if not _has(field, version):
            continue
        if field.name in _ERROR_FIELDS:
            setattr(reply, field.name, code)
        elif field.name in _UNKNOWN:
            setattr(reply, field.name, _UNKNOWN[field.name])
        elif field.is_array and field.struct is not None and _has_place(field.struct, version):
            items = _items_of(asked, field, version) or ([] if at_top else _first_items(asked, version))
            setattr(reply, field.name, [_item(field.struct, item, version, code) for item in items])


def _item(struct: MessageType, asked: object, version: int, code: int) -> Message:
    made = struct()
    assert isinstance(made, Message)
    if isinstance(asked, Message):
        _copy_identity(made, asked, version)
    else:
        _set_identity(made, asked, version)
    _fill(made, asked, version, code)
    return made


def _has(field: Field, version: int) -> bool:
    first, last = parse_versions(field.versions)
    return first <= version <= last


def _has_place(struct: MessageType, version: int) -> bool:
    """Whether a struct, or one in it, has a place for an error."""
    for field in struct.__fields__:
        if _has(field, version) and (
            field.name in _ERROR_FIELDS
            or (field.is_array and field.struct is not None and _has_place(field.struct, version))
        ):
            return True
    return False


def _items_of(asked: object, field: Field, version: int) -> list[Any]:
    """The request's items that a list of the reply answers: those of the list of its name, or else of one whose items
    have something in common with the reply's."""
    for each in sorted(_lists(asked, version), key=lambda each: each.name != field.name):
        if _answers(field, each, version):
            return list(getattr(asked, each.name))
    return []


def _first_items(asked: object, version: int) -> list[Any]:
    """For replies that tell their items by nothing but their order."""
    return next((list(getattr(asked, each.name)) for each in _lists(asked, version) if each.struct is not None), [])


def _lists(asked: object, version: int) -> list[Field]:
    """The lists of a request, or of an item of it, that have something in them."""
    if not isinstance(asked, Message):
        return []
    fields = type(asked).__fields__
    return [each for each in fields if each.is_array and _has(each, version) and getattr(asked, each.name)]


def _answers(reply: Field, asked: Field, version: int) -> bool:
    """Whether items of the one list can be told by items of the other."""
    assert reply.struct is not None
    if asked.struct is None:
        return any(_has(field, version) and _is_plain(field, asked.kind) for field in reply.struct.__fields__)
    return any(
        _same_name(mine.name, theirs.name) and mine.kind == theirs.kind
        for mine in reply.struct.__fields__
        for theirs in asked.struct.__fields__
        if _has(mine, version) and _has(theirs, version)
    )


def _is_plain(field: Field, kind: int) -> bool:
    return not field.is_array and field.kind == kind and field.name not in (*_ERROR_FIELDS, "error_message")


def _same_name(one: str, other: str) -> bool:
    return one == other or any(one in names and other in names for names in _SAME)


def _copy_identity(made: Message, asked: Message, version: int) -> None:
    """The fields that both have and that say which one it is: names, ids, numbers of partitions."""
    for mine in type(made).__fields__:
        for theirs in type(asked).__fields__:
            if (
                _same_name(mine.name, theirs.name)
                and mine.kind == theirs.kind
                and (mine.kind in (STRING, UUID) or mine.name in _NUMBERS)
                and not mine.is_array
                and not theirs.is_array
                and _has(mine, version)
                and _has(theirs, version)
            ):
                setattr(made, mine.name, getattr(asked, theirs.name))


def _set_identity(made: Message, value: object, version: int) -> None:
    """Of a request that lists plain names or numbers: the first field that can hold one."""
    kinds = (STRING,) if isinstance(value, str) else (INT32, INT16)
    for field in type(made).__fields__:
        if _has(field, version) and any(_is_plain(field, kind) for kind in kinds):
            setattr(made, field.name, value)
            return
