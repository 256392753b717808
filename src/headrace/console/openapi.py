"""The OpenAPI 3.1 description of the API, made from its routes."""

import re
from collections.abc import Iterable
from typing import Any, get_type_hints

from headrace import __version__
from headrace.console.routing import Route
from headrace.console.schema import schema_of

__all__ = ["describe"]

_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "field"],
            "properties": {
                "code": {"type": "string", "description": "Kafka's name of the error, or one of the console."},
                "message": {"type": "string"},
                "field": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            },
        }
    },
}
_INTRODUCTION = """\
Everything that the console shows and does. `GET /api/session` creates the session cookie and returns a CSRF token.
Changes need both: the cookie, and the token in the header X-CSRF-Token. On a cluster with SASL, `POST /api/login`
comes first.
"""


def describe(routes: Iterable[Route]) -> dict[str, Any]:
    """Returns the description of all routes."""
    components: dict[str, Any] = {}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, components)
    schemas = {name: {k: v for k, v in schema.items() if k != "x-module"} for name, schema in components.items()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Headrace console", "version": __version__, "description": " ".join(_INTRODUCTION.split())},
        "paths": paths,
        "components": {
            "schemas": {**schemas, "Error": _ERROR},
            "securitySchemes": {
                "session": {"type": "apiKey", "in": "cookie", "name": "headrace_console"},
                "csrf": {"type": "apiKey", "in": "header", "name": "X-CSRF-Token"},
            },
            "responses": {
                "Error": {
                    "description": "The request was refused, or it failed.",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
                }
            },
        },
    }


def _operation(route: Route, components: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.operation_id,
        "tags": [route.tag],
        "summary": route.summary,
        "security": [{"session": [], "csrf": []}] if route.method != "GET" else [{"session": []}, {}],
        "parameters": [*map(_path_parameter, route.parameters), *_query_parameters(route, components)],
        "responses": {**_responses(route, components), "default": {"$ref": "#/components/responses/Error"}},
    }
    if route.description:
        operation["description"] = route.description
    if route.body is not None:
        schema = schema_of(route.body, components)
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return operation


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _query_parameters(route: Route, components: dict[str, Any]) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    schema_of(route.query, components)
    schema = components.pop(route.query.__name__)
    hints = {name.removesuffix("_"): hint for name, hint in get_type_hints(route.query).items()}
    return [
        {
            "name": name,
            "in": "query",
            "required": name in schema.get("required", []),
            "schema": _without_null(found),
            **({"explode": True, "style": "form"} if re.match(r"list\[", str(hints[name])) else {}),
        }
        for name, found in schema["properties"].items()
    ]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """An absent parameter stands for null: there is no text for it."""
    if "anyOf" not in schema:
        return schema
    options = [option for option in schema["anyOf"] if option.get("type") != "null"]
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    return {**rest, **options[0]} if len(options) == 1 else {**rest, "anyOf": options}


def _responses(route: Route, components: dict[str, Any]) -> dict[str, Any]:
    if route.response is None:
        if route.content_type != "application/json":
            content = {route.content_type: {"schema": {"type": "string"}}}
            return {str(route.status): {"description": route.summary, "content": content}}
        return {"204": {"description": "Done."}}
    content = {route.content_type: {"schema": schema_of(route.response, components)}}
    return {str(route.status): {"description": route.summary, "content": content}}
