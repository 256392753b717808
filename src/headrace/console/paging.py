"""Pages of lists: search, order, and a part of the items."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from headrace.console.errors import ApiError
from headrace.console.schema import Length, Range

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class PageQuery:
    """Which part of a list."""

    page: Annotated[int, Range(1, 1_000_000)] = 1
    per_page: Annotated[int, Range(1, 500)] = 50
    search: Annotated[str, Length(0, 300)] = ""
    """Only items whose name contains this text, in any case."""
    sort: str = "name"
    order: Literal["asc", "desc"] = "asc"


def select(
    items: Iterable[T], query: PageQuery, name: Callable[[T], str], keys: dict[str, Callable[[T], Any]]
) -> list[T]:
    """Returns the items that match the search, in order. Unknown values come last."""
    key = keys.get(query.sort)
    if key is None:
        raise ApiError(400, "INVALID_REQUEST", f"sort: expected {', '.join(keys)}", "sort")
    wanted = query.search.lower()
    found = [item for item in items if not wanted or wanted in name(item).lower()]
    known = [item for item in found if key(item) is not None]
    known.sort(key=name)
    known.sort(key=key, reverse=query.order == "desc")
    return known + sorted((item for item in found if key(item) is None), key=name)


def page_of(items: list[T], query: PageQuery) -> list[T]:
    start = (query.page - 1) * query.per_page
    return items[start : start + query.per_page]
