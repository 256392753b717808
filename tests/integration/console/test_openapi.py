"""The API behaves as its OpenAPI description says: schemathesis makes requests from it and checks the responses.

Left out: endless streams, and login and logout, which would end the session of the test. Each operation gets few
examples, always the same ones.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.support.console.running import ApiClient, console_for, ready_client

from headrace import Producer
from headrace.testing import EmbeddedBroker

CHECKS = (not_a_server_error, content_type_conformance, response_schema_conformance, status_code_conformance)
EXAMPLES = 5
LEFT_OUT = ("/api/login", "/api/logout")


@pytest.fixture(scope="module")
def client() -> Iterator[ApiClient]:
    with EmbeddedBroker(topics={"orders": 2}) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("orders", b'{"a": 1}', key=b"k")
        with console_for(broker.bootstrap_servers) as server:
            yield ready_client(server)


def with_names(document: dict[str, Any]) -> dict[str, Any]:
    """Names in paths are often those of things that exist."""
    names = {
        "cluster": ["default"],
        "topic": ["orders", "a b/c"],
        "group": ["g", "a/b"],
        "broker": ["0", "1", "default"],
    }
    for path in document["paths"].values():
        for operation in path.values():
            for parameter in operation["parameters"]:
                if parameter["in"] == "path" and parameter["name"] in names:
                    parameter["schema"] = {"type": "string", "enum": names[parameter["name"]]}
    return document


def test_responses_are_as_described(client: ApiClient) -> None:
    document = with_names(client.get("/api/openapi.json"))
    schema = schemathesis.openapi.from_dict(document)
    url = f"http://{client.host}:{client.port}"
    called = set()
    for result in schema.get_all_operations():
        operation = result.ok()
        content = document["paths"][operation.path][operation.method.lower()]["responses"]
        if operation.path in LEFT_OUT or "text/event-stream" in json.dumps(content):
            continue

        @given(case=operation.as_strategy())
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def check(case: Any) -> None:
            response = case.call(
                base_url=url,
                headers={"X-CSRF-Token": client.csrf_token},
                cookies={"headrace_console": client.cookie},
                timeout=90,
            )
            case.validate_response(response, checks=CHECKS)
            assert response.status_code != 500, response.text

        check()
        called.add(operation.path)
    assert len(called) > 15
    assert client.get("overview")["reachable"]


def test_the_description_is_complete(client: ApiClient) -> None:
    document = client.get("/api/openapi.json")
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    assert document["openapi"].startswith("3.1")
    names = [operation["operationId"] for operation in operations]
    assert len(set(names)) == len(names)
    assert all(operation["summary"] and operation["tags"] for operation in operations)
    assert "x-module" not in json.dumps(document)
    for operation in operations:
        for parameter in operation["parameters"]:
            assert parameter["in"] == "query" or parameter["required"]
