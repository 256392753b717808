"""Which table's changes go to which topic, and what their columns are. No Spark import.

A user's own tables come as a file of JSON (`--set routes=routes.json`), read beside the routes of the shop:

    {"coupon_use": {"topic": "dwd_coupon", "columns": "id BIGINT, coupon_id BIGINT, used_at TIMESTAMP"},
     "comment_info": {"topic": "dwd_comment"},
     "cart_info": null}

`columns` is a schema in SQL: the columns are checked, typed and written in that order, others are left out. Without it
the row goes on as it came, as `data`. `null` takes a route away. Several tables may share a topic.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.pipelines.pipeline import PipelineError
from headrace.shop import schemas

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_RESERVED = ("event_id", "ts", "op", "xid", "old", "src")


@dataclass(frozen=True)
class Route:
    """Where the changes of a table go."""

    topic: str
    columns: str | None = None
    """A schema in SQL; None: the row as it came."""


ROUTES: Mapping[str, Route] = {
    "order_info": Route(schemas.DWD_ORDER, schemas.ORDER_INFO),
    "payment_info": Route(schemas.DWD_PAYMENT, schemas.PAYMENT_INFO),
    "refund_info": Route(schemas.DWD_REFUND, schemas.REFUND_INFO),
    "cart_info": Route(schemas.DWD_CART, schemas.CART_INFO),
}
"""By table."""


def load_routes(path: str, base: Mapping[str, Route] = ROUTES) -> dict[str, Route]:
    """Routes with those of a file."""
    try:
        given = json.loads(Path(path).read_text())
    except OSError as error:
        raise PipelineError(f"routes {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise PipelineError(f"routes {path}: not JSON: {error}") from error
    return extended(base, given, where=f"routes {path}")


def extended(base: Mapping[str, Route], given: Any, *, where: str = "routes") -> dict[str, Route]:
    """Routes with others, as they are in a file."""
    if not isinstance(given, dict):
        raise PipelineError(f"{where}: expected an object of routes by table, not {type(given).__name__}")
    routes = dict(base)
    for table, route in given.items():
        if not table or table != table.strip():
            raise PipelineError(f"{where}: {table!r} is no name of a table")
        if route is None:
            routes.pop(table, None)
        else:
            routes[table] = _route(f"{where}, table {table}", route)
    return routes


def _route(where: str, route: Any) -> Route:
    if not isinstance(route, dict) or not set(route) <= {"topic", "columns"}:
        raise PipelineError(f'{where}: expected {{"topic": ..., "columns": ...}} or null, not {json.dumps(route)}')
    topic, columns = route.get("topic"), route.get("columns")
    if not isinstance(topic, str) or not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise PipelineError(f"{where}: topic {topic!r} is no name of a topic")
    if topic in (schemas.ODS_LOG, schemas.ODS_DB, *schemas.LOG_TOPICS):
        raise PipelineError(f"{where}: topic {topic} has other rows; give one of its own")
    if columns is not None and (not isinstance(columns, str) or not columns.strip()):
        raise PipelineError(f"{where}: columns {columns!r}: expected a schema as 'id BIGINT, name STRING'")
    return Route(topic, columns)


def check_columns(table: str, names: list[str]) -> None:
    """A row's columns must not hide what every row has."""
    for name in names:
        if name.lower() in _RESERVED:
            raise PipelineError(f"routes, table {table}: a column cannot be named {name!r}: every row has that already")
