from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest

from headrace.console.errors import ApiError
from headrace.console.schema import Length, Pattern, Range, as_json, parse, parse_query, schema_of


@dataclass(frozen=True)
class Inner:
    """Something inside."""

    number: Annotated[int, Range(0, 10)]


@dataclass(frozen=True)
class Outer:
    """All kinds of fields."""

    text: Annotated[str, Length(1, 5)]
    inner: Inner | None = None
    many: list[Inner] = field(default_factory=list)
    by_name: dict[str, float] = field(default_factory=dict)
    choice: Literal["a", "b"] = "a"
    code: Annotated[str, Pattern("[A-Z]+")] = "X"
    flag: bool = False
    anything: Any = None


def test_a_document_becomes_a_dataclass_and_back() -> None:
    document = {
        "text": "hello",
        "inner": {"number": 3},
        "many": [{"number": 1}, {"number": 2}],
        "by_name": {"x": 1, "y": 2.5},
        "choice": "b",
        "code": "OK",
        "flag": True,
        "anything": {"a": [1]},
    }
    parsed = parse(Outer, document)
    assert parsed.many == [Inner(1), Inner(2)]
    assert parsed.by_name == {"x": 1.0, "y": 2.5}
    assert as_json(parsed) == document
    assert parse(Outer, {"text": "a"}) == Outer("a")


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ([], None),
        ({}, "text"),
        ({"text": 5}, "text"),
        ({"text": ""}, "text"),
        ({"text": "too long"}, "text"),
        ({"text": "\ud800"}, "text"),
        ({"text": "a", "other": 1}, "other"),
        ({"text": "a", "inner": {"number": 11}}, "inner.number"),
        ({"text": "a", "inner": {"number": True}}, "inner.number"),
        ({"text": "a", "inner": {"number": 1.5}}, "inner.number"),
        ({"text": "a", "inner": 5}, "inner"),
        ({"text": "a", "many": [{"number": 1}, {}]}, "many[1].number"),
        ({"text": "a", "by_name": {"x": "y"}}, "by_name.x"),
        ({"text": "a", "by_name": {"x": float("nan")}}, "by_name.x"),
        ({"text": "a", "by_name": {"x": 10**400}}, "by_name.x"),
        ({"text": "a", "choice": "c"}, "choice"),
        ({"text": "a", "code": "lower"}, "code"),
        ({"text": "a", "flag": 1}, "flag"),
    ],
)
def test_a_wrong_field_is_named(document: Any, field: str | None) -> None:
    with pytest.raises(ApiError) as caught:
        parse(Outer, document)
    assert (caught.value.status, caught.value.code, caught.value.field) == (400, "INVALID_REQUEST", field)


@dataclass(frozen=True)
class Query:
    """A query."""

    page: Annotated[int, Range(1, 9)] = 1
    ratio: float = 0.5
    names: list[str] = field(default_factory=list)
    internal: bool = False
    time: int | None = None
    order: Literal["asc", "desc"] = "asc"


def test_a_query_string_becomes_a_dataclass() -> None:
    texts = {
        "page": ["2"],
        "ratio": ["1.5"],
        "names": ["a", "b"],
        "internal": ["true"],
        "time": ["7"],
        "order": ["desc"],
    }
    assert parse_query(Query, texts) == Query(2, 1.5, ["a", "b"], True, 7, "desc")
    assert parse_query(Query, {}) == Query()


@pytest.mark.parametrize(
    "texts",
    [
        {"page": ["0"]},
        {"page": ["x"]},
        {"page": ["1", "2"]},
        {"page": ["٣"]},
        {"ratio": ["nan"]},
        {"internal": ["yes"]},
        {"time": ["99999999999999999999"]},
        {"order": ["up"]},
        {"colour": ["red"]},
    ],
)
def test_a_wrong_parameter_is_refused(texts: dict[str, list[str]]) -> None:
    with pytest.raises(ApiError) as caught:
        parse_query(Query, texts)
    assert caught.value.field == next(iter(texts))


def test_schemas_describe_limits_and_defaults() -> None:
    components: dict[str, Any] = {}
    assert schema_of(Outer, components) == {"$ref": "#/components/schemas/Outer"}
    outer = components["Outer"]
    assert outer["required"] == ["text"]
    assert outer["additionalProperties"] is False
    assert outer["description"] == "All kinds of fields."
    assert outer["properties"]["text"] == {"type": "string", "minLength": 1, "maxLength": 5}
    assert outer["properties"]["choice"] == {"enum": ["a", "b"], "default": "a"}
    assert outer["properties"]["many"] == {"type": "array", "items": {"$ref": "#/components/schemas/Inner"}}
    assert components["Inner"]["properties"]["number"]["maximum"] == 10


def test_what_json_cannot_have_is_refused() -> None:
    with pytest.raises(TypeError):
        as_json(object())
