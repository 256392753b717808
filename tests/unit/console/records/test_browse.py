"""Cursors of pages."""

import base64

import pytest

from headrace.console.records.browse import Cursor
from headrace.console.search.conditions import FilterError


def test_cursor() -> None:
    cursor = Cursor(True, {0: 5, 12: 2**62})
    assert Cursor.decode(cursor.encode()) == cursor


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "",
        "ü",
        *(base64.urlsafe_b64encode(one).decode() for one in (b"[1]", b"[1,5]", b"[1,[[0,-1]]]", b"[1,[[0,1e999]]]")),
    ],
)
def test_wrong_cursors(text: str) -> None:
    with pytest.raises(FilterError, match="cursor"):
        Cursor.decode(text)
