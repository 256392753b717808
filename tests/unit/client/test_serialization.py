"""The signatures of serializers."""

from collections.abc import Callable
from typing import Any

import pytest

from headrace.client.serialization import find_method


def _object(method: Callable[..., Any]) -> Any:
    return type("Given", (), {"serialize": staticmethod(method)})()


@pytest.mark.parametrize(
    ("method", "wants_headers"),
    [
        (lambda topic, data: data, False),
        (lambda topic, data, strict=True: data, False),
        (lambda topic, data, *rest: data, False),
        (lambda topic, data, *, strict=True: data, False),
        (lambda topic, data=None: data, False),
        (lambda topic, headers, data: data, True),
        (lambda topic, headers, data, strict=True: data, True),
        (lambda topic, headers=None, data=None: data, True),
        (lambda *given: given[-1], True),
    ],
)
def test_signature_determines_whether_headers_are_passed(method: Callable[..., Any], wants_headers: bool) -> None:
    assert find_method(_object(method), "serialize")[1] is wants_headers
