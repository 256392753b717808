"""A response in which everything that the request names fails with one error.

Kafka's responses have error codes at the top, in each item, or both, and that differs between versions. Instead of one
function per API, this module follows the fields of the response class:

- A field `error_code` gets the code.
- A list whose items have an error code gets one item for each item of the matching list in the request. The item has
  the identifying fields of the request's item.

    request   topics [ name, partitions [ partition, fetch_offset, ... ] ]
    response  responses [ topic, partitions [ partition_index, error_code, ... ] ]
"""

from typing import Any

from headrace.protocol import APIS, ApiKey, Message, MessageType
from headrace.protocol.message import INT16, INT32, STRING, UUID, Field, parse_versions

_SYNONYMS = (
    frozenset(("partition", "partition_index", "index", "partition_id")),
    frozenset(("name", "topic", "topic_name", "user")),
)
"""Field names with the same meaning in requests and responses."""

_NUMBERS = (*_SYNONYMS[0], "resource_type")
"""Number fields that identify an item. Other number fields can have different meanings in request and response."""

_ERROR_FIELDS = ("error_code", "partition_error_code")
_WITHOUT_ITEMS = (ApiKey.ALTER_PARTITION,)
"""APIs whose failed response has only the error at the top, as in Kafka."""
_UNKNOWN = {"base_offset": -1, "high_watermark": -1, "node_id": -1, "port": -1}
"""Fields next to an error whose default would be a valid value."""


def error_response(request: Message, version: int, code: int, message: str | None = None) -> Message:
    """Returns the response to a request in which everything failed with this error."""
    key = ApiKey(type(request).__api_key__)
    response = APIS[key].response()
    _fill(response, type(request)() if key in _WITHOUT_ITEMS else request, version, code)
    if message is not None:
        _set_message(response, message, version)
    return response


def _set_message(response: Message, message: str, version: int) -> None:
    """Sets the error messages of a response or of one of its items, if it has any."""
    for field in type(response).__fields__:
        if field.name == "error_message" and _has(field, version):
            response.error_message = message  # type: ignore[attr-defined]
        elif field.is_array and field.struct is not None and _has_error_code(field.struct, version):
            for item in getattr(response, field.name) or ():
                _set_message(item, message, version)


def _fill(response: Message, requested: object, version: int, code: int) -> None:
    """Sets the code in a response, or in one of its items, that responds to `requested`."""
    has_own_error_code = any(
        field.name in _ERROR_FIELDS and _has(field, version) for field in type(response).__fields__
    )
    for field in type(response).__fields__:
        if not _has(field, version):
            continue
        if field.name in _ERROR_FIELDS:
            setattr(response, field.name, code)
        elif field.name in _UNKNOWN:
            setattr(response, field.name, _UNKNOWN[field.name])
        elif field.is_array and field.struct is not None and _has_error_code(field.struct, version):
            items = _items_of(requested, field, version) or (
                [] if has_own_error_code else _first_items(requested, version)
            )
            setattr(response, field.name, [_item(field.struct, item, version, code) for item in items])
        elif field.is_array and field.struct is not None and (copied := _copied(field, requested, version)):
            setattr(response, field.name, copied)


def _copied(field: Field, requested: object, version: int) -> list[Message]:
    """Returns the items of the request's list with the same name and the same fields, such as the entity of a quota."""
    assert field.struct is not None
    names = [each.name for each in field.struct.__fields__]
    for candidate in _lists(requested, version):
        if (
            candidate.name == field.name
            and candidate.struct is not None
            and [each.name for each in candidate.struct.__fields__] == names
        ):
            struct = field.struct
            return [struct(**{name: getattr(item, name) for name in names}) for item in getattr(requested, field.name)]
    return []


def _item(struct: MessageType, requested: object, version: int, code: int) -> Message:
    item = struct()
    assert isinstance(item, Message)
    if isinstance(requested, Message):
        _copy_identity(item, requested, version)
    else:
        _set_identity(item, requested, version)
    _fill(item, requested, version, code)
    return item


def _has(field: Field, version: int) -> bool:
    first, last = parse_versions(field.versions)
    return first <= version <= last


def _has_error_code(struct: MessageType, version: int) -> bool:
    """Returns True if a struct, or one nested in it, has an error code."""
    for field in struct.__fields__:
        if _has(field, version) and (
            field.name in _ERROR_FIELDS
            or (field.is_array and field.struct is not None and _has_error_code(field.struct, version))
        ):
            return True
    return False


def _items_of(requested: object, field: Field, version: int) -> list[Any]:
    """Returns the request's items for a list of the response.

    They are in the request's list of the same name, or else in one whose items share an identifying field.
    """
    for candidate in sorted(_lists(requested, version), key=lambda candidate: candidate.name != field.name):
        if _identifies(field, candidate, version):
            return list(getattr(requested, candidate.name))
    return []


def _first_items(requested: object, version: int) -> list[Any]:
    """Returns the request's items for responses that identify items only by their order."""
    return next(
        (list(getattr(requested, field.name)) for field in _lists(requested, version) if field.struct is not None), []
    )


def _lists(requested: object, version: int) -> list[Field]:
    """Returns the non-empty lists of a request or of one of its items."""
    if not isinstance(requested, Message):
        return []
    fields = type(requested).__fields__
    return [field for field in fields if field.is_array and _has(field, version) and getattr(requested, field.name)]


def _identifies(response: Field, requested: Field, version: int) -> bool:
    """Returns True if items of the request's list identify items of the response's list."""
    assert response.struct is not None
    if requested.struct is None:
        return any(_has(field, version) and _is_plain(field, requested.kind) for field in response.struct.__fields__)
    return any(
        _same_name(response_field.name, request_field.name) and response_field.kind == request_field.kind
        for response_field in response.struct.__fields__
        for request_field in requested.struct.__fields__
        if _has(response_field, version) and _has(request_field, version)
    )


def _is_plain(field: Field, kind: int) -> bool:
    return not field.is_array and field.kind == kind and field.name not in (*_ERROR_FIELDS, "error_message")


def _same_name(name: str, other_name: str) -> bool:
    return name == other_name or any(name in names and other_name in names for names in _SYNONYMS)


def _copy_identity(item: Message, requested: Message, version: int) -> None:
    """Copies the identifying fields that both have: names, ids, partition numbers."""
    for response_field in type(item).__fields__:
        for request_field in type(requested).__fields__:
            if (
                _same_name(response_field.name, request_field.name)
                and response_field.kind == request_field.kind
                and (response_field.kind in (STRING, UUID) or response_field.name in _NUMBERS)
                and not response_field.is_array
                and not request_field.is_array
                and _has(response_field, version)
                and _has(request_field, version)
            ):
                setattr(item, response_field.name, getattr(requested, request_field.name))


def _set_identity(item: Message, value: object, version: int) -> None:
    """Sets the first field that can hold a value of a request that lists plain names or numbers."""
    kinds = (STRING,) if isinstance(value, str) else (INT32, INT16)
    for field in type(item).__fields__:
        if _has(field, version) and any(_is_plain(field, kind) for kind in kinds):
            setattr(item, field.name, value)
            return
