"""Dataclasses as JSON: requests are checked against them, responses are written from them, and the OpenAPI description
has their JSON Schema.

Supported types: str, int, float, bool, None, unions of them, `Literal`, `list[X]`, `tuple[X, ...]`, `dict[str, X]`,
dataclasses and `Any`. `Annotated[int, Range(1, 500)]` and `Annotated[str, Length(1, 249)]` limit values. A field with a
default may be absent. Docstrings of classes become descriptions.
"""

import dataclasses
import re
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from headrace.console.errors import ApiError

__all__ = ["Length", "Pattern", "Range", "as_json", "parse", "parse_query", "schema_of"]

T = TypeVar("T")
_INT = re.compile(r"-?[0-9]{1,19}")
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class Range:
    """The allowed numbers, both included."""

    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Length:
    """The allowed lengths of a text or of a list."""

    low: int = 0
    high: int | None = None


@dataclass(frozen=True)
class Pattern:
    """A regular expression that a whole text has to match."""

    expression: str


class _Invalid(Exception):
    def __init__(self, path: str, expected: str):
        super().__init__(expected)
        self.path = path
        self.expected = expected


# ---- writing


def as_json(value: Any) -> Any:
    """Returns a value as `json.dumps` takes it."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {_json_name(field.name): as_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, Sequence | set | frozenset):
        return [as_json(item) for item in value]
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


# ---- reading


def parse(kind: type[T], document: Any, where: str = "body") -> T:
    """Returns a dataclass with the values of a JSON document. Raises ApiError with the name of a wrong field."""
    try:
        return _parse(kind, document, "")  # type: ignore[no-any-return]
    except _Invalid as error:
        name = error.path.lstrip(".")
        subject = f"{where} field {name!r}" if name else where
        raise ApiError(400, "INVALID_REQUEST", f"{subject}: expected {error.expected}", name or None) from None


def parse_query(kind: type[T], parameters: Mapping[str, Sequence[str]]) -> T:
    """Returns a dataclass with the parameters of a query string."""
    hints = {_json_name(name): hint for name, hint in _hints(kind).items()}  # type: ignore[arg-type]
    unknown = sorted(set(parameters) - set(hints))
    if unknown:
        raise ApiError(400, "INVALID_REQUEST", f"Unknown query parameter {unknown[0]!r}", unknown[0])
    document: dict[str, Any] = {}
    for name, texts in parameters.items():
        try:
            document[name] = _from_texts(hints[name], texts)
        except _Invalid as error:
            message = f"query parameter {name!r}: expected {error.expected}"
            raise ApiError(400, "INVALID_REQUEST", message, name) from None
    return parse(kind, document, "query")


def _from_texts(hint: Any, texts: Sequence[str]) -> Any:
    base, _ = _unwrap(hint)
    if get_origin(base) is list:
        return [_from_texts(get_args(base)[0], [text]) for text in texts]
    if len(texts) != 1:
        raise _Invalid("", "one value")
    options = get_args(base) if _is_union(base) else (base,)
    text = texts[0]
    kinds = [_unwrap(option)[0] for option in options]
    for kind in kinds:
        if kind is bool and text in ("true", "false"):
            return text == "true"
        if kind is int and _INT.fullmatch(text):
            return int(text)
        if kind is float:
            try:
                return float(text)
            except ValueError:
                continue
    if str in kinds or any(get_origin(kind) is Literal for kind in kinds):
        return text
    raise _Invalid("", " or ".join(_name(kind) for kind in kinds if kind is not type(None)))


def _parse(hint: Any, value: Any, path: str) -> Any:
    kind, limits = _unwrap(hint)
    parsed = _parse_kind(kind, value, path)
    for limit in limits:
        _check(limit, parsed, path)
    return parsed


def _parse_kind(kind: Any, value: Any, path: str) -> Any:
    if kind is Any:
        return value
    if _is_union(kind):
        return _parse_union(kind, value, path)
    origin = get_origin(kind)
    if origin is Literal:
        choices = get_args(kind)
        if not any(type(choice) is type(value) and choice == value for choice in choices):
            raise _Invalid(path, " or ".join(map(repr, choices)))
        return value
    if origin in (list, tuple):
        if not isinstance(value, list):
            raise _Invalid(path, "a list")
        items = [_parse(get_args(kind)[0], item, f"{path}[{index}]") for index, item in enumerate(value)]
        return items if origin is list else tuple(items)
    if origin is dict:
        if not isinstance(value, dict):
            raise _Invalid(path, "an object")
        return {key: _parse(get_args(kind)[1], item, f"{path}.{key}") for key, item in value.items()}
    if dataclasses.is_dataclass(kind):
        return _parse_object(kind, value, path)
    return _parse_scalar(kind, value, path)


def _parse_union(kind: Any, value: Any, path: str) -> Any:
    options = get_args(kind)
    if value is None and type(None) in options:
        return None
    failures = []
    for option in options:
        if option is type(None):
            continue
        try:
            return _parse(option, value, path)
        except _Invalid as error:
            failures.append(error)
    deepest = max(failures, key=lambda error: len(error.path))
    if deepest.path != path:
        raise deepest
    raise _Invalid(path, " or ".join(dict.fromkeys(error.expected for error in failures)))


def _parse_object(kind: Any, value: Any, path: str) -> Any:
    if not isinstance(value, dict):
        raise _Invalid(path, "an object")
    hints = {_json_name(name): hint for name, hint in _hints(kind).items()}
    unknown = sorted(set(value) - set(hints))
    if unknown:
        raise _Invalid(f"{path}.{unknown[0]}", f"only the fields {', '.join(hints)}")
    fields = {}
    for field in dataclasses.fields(kind):
        name = _json_name(field.name)
        if name in value:
            fields[field.name] = _parse(hints[name], value[name], f"{path}.{name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise _Invalid(f"{path}.{name}", "a value")
    return kind(**fields)


def _parse_scalar(kind: Any, value: Any, path: str) -> Any:
    if kind is bool and isinstance(value, bool):
        return value
    if kind is int and isinstance(value, int) and not isinstance(value, bool) and _LONG_MIN <= value <= _LONG_MAX:
        return value
    if kind is int and isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            raise _Invalid(path, "a smaller number") from None
        if number == number and abs(number) != float("inf"):
            return number
    if kind is str and isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _Invalid(path, "text without lone surrogates") from None
        return value
    raise _Invalid(path, _name(kind))


def _check(limit: Any, value: Any, path: str) -> None:
    if value is None:
        return
    if isinstance(limit, Range):
        if limit.low is not None and value < limit.low:
            raise _Invalid(path, f"at least {limit.low:g}")
        if limit.high is not None and value > limit.high:
            raise _Invalid(path, f"at most {limit.high:g}")
    elif isinstance(limit, Length):
        if len(value) < limit.low:
            raise _Invalid(path, f"a length of at least {limit.low}")
        if limit.high is not None and len(value) > limit.high:
            raise _Invalid(path, f"a length of at most {limit.high}")
    elif isinstance(limit, Pattern) and re.fullmatch(limit.expression, value) is None:
        raise _Invalid(path, f"text that matches {limit.expression}")


# ---- describing


def schema_of(kind: Any, components: dict[str, Any]) -> dict[str, Any]:
    """Returns the JSON Schema of a type. Dataclasses are added to *components* and referred to."""
    base, limits = _unwrap(kind)
    schema = _schema_of_kind(base, components)
    for limit in limits:
        schema = {**schema, **_limits_of(limit, schema)}
    return schema


def _schema_of_kind(kind: Any, components: dict[str, Any]) -> dict[str, Any]:
    if kind is Any:
        return {}
    if _is_union(kind):
        options = [schema_of(option, components) for option in get_args(kind)]
        return {"anyOf": options}
    origin = get_origin(kind)
    if origin is Literal:
        return {"enum": list(get_args(kind))}
    if origin in (list, tuple):
        return {"type": "array", "items": schema_of(get_args(kind)[0], components)}
    if origin is dict:
        return {"type": "object", "additionalProperties": schema_of(get_args(kind)[1], components)}
    if dataclasses.is_dataclass(kind):
        return _schema_of_object(kind, components)
    if kind is int:
        return {"type": "integer", "format": "int64", "minimum": _LONG_MIN, "maximum": _LONG_MAX}
    return {"type": {str: "string", float: "number", bool: "boolean", type(None): "null"}[kind]}


def _schema_of_object(kind: Any, components: dict[str, Any]) -> dict[str, Any]:
    name = kind.__name__
    reference = {"$ref": f"#/components/schemas/{name}"}
    known = components.get(name)
    if known is not None:
        if known["x-module"] != kind.__module__:
            raise TypeError(f"Two dataclasses of the API have the name {name}: {known['x-module']}, {kind.__module__}")
        return reference
    components[name] = {"x-module": kind.__module__}
    hints = _hints(kind)
    properties, required = {}, []
    for field in dataclasses.fields(kind):
        schema = schema_of(hints[field.name], components)
        if field.default is not dataclasses.MISSING:
            schema = {**schema, "default": as_json(field.default)}
        elif field.default_factory is dataclasses.MISSING:
            required.append(_json_name(field.name))
        properties[_json_name(field.name)] = schema
    components[name] |= {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        components[name]["required"] = required
    text = kind.__doc__ or ""
    if text and not text.startswith(f"{name}("):
        components[name]["description"] = " ".join(text.split())
    return reference


def _limits_of(limit: Any, schema: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(limit, Range):
        bounds = {"minimum": limit.low, "maximum": limit.high}
        return {key: value for key, value in bounds.items() if value is not None}
    if isinstance(limit, Length):
        low, high = ("minItems", "maxItems") if schema.get("type") == "array" else ("minLength", "maxLength")
        return {low: limit.low} | ({high: limit.high} if limit.high is not None else {})
    if isinstance(limit, Pattern):
        return {"pattern": f"^(?:{limit.expression})$"}
    raise TypeError(f"{limit!r} is not a limit of the API")


# ---- types


def _json_name(name: str) -> str:
    """Returns a field's name in JSON. A name that is a keyword of Python has an underscore behind it: `from_`."""
    return name.removesuffix("_")


def _unwrap(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    if get_origin(hint) is Annotated:
        base, *limits = get_args(hint)
        return base, tuple(limits)
    return hint, ()


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, types.UnionType)


def _name(kind: Any) -> str:
    names = {str: "text", int: "an integer", float: "a number", bool: "true or false", type(None): "null"}
    return names.get(kind, "another value")


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)
