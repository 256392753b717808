from dataclasses import replace

import pytest

from headrace.console.errors import ApiError
from headrace.console.paging import PageQuery, page_of, select

ITEMS = [("b", 2), ("A", None), ("c", 1), ("bb", 2)]
KEYS = {"name": lambda item: item[0], "size": lambda item: item[1]}


def names(query: PageQuery) -> list[str]:
    return [item[0] for item in select(ITEMS, query, lambda item: item[0], KEYS)]


def test_items_are_searched_and_sorted_unknown_values_last() -> None:
    assert names(PageQuery(search="B")) == ["b", "bb"]
    assert names(PageQuery(sort="size")) == ["c", "b", "bb", "A"]
    assert names(PageQuery(sort="size", order="desc")) == ["b", "bb", "c", "A"]
    with pytest.raises(ApiError):
        names(PageQuery(sort="colour"))


def test_pages() -> None:
    query = PageQuery(page=2, per_page=3)
    assert page_of(list(range(5)), query) == [3, 4]
    assert page_of(list(range(5)), replace(query, page=3)) == []
