"""The routes of the shop's database: the topic and the columns of each table. No Spark import.

A user adds routes with a JSON file (`--set routes=routes.json`), which extends the routes of the shop:

    {"coupon_use": {"topic": "dwd_coupon", "columns": "id BIGINT, coupon_id BIGINT, used_at TIMESTAMP"},
     "comment_info": {"topic": "dwd_comment"},
     "cart_info": null}

`columns` is a SQL schema: these columns are checked, typed and written in this order. Other columns are left out.
Without `columns`, the row is written unchanged, as `data`. `null` removes a route. Several tables may share a topic.
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
    """The topic and the columns of a table's changes."""

    topic: str
    columns: str | None = None
    """A SQL schema; None writes the row unchanged."""


ROUTES: Mapping[str, Route] = {
    "order_info": Route(schemas.DWD_ORDER, schemas.ORDER_INFO),
    "payment_info": Route(schemas.DWD_PAYMENT, schemas.PAYMENT_INFO),
    "refund_info": Route(schemas.DWD_REFUND, schemas.REFUND_INFO),
    "cart_info": Route(schemas.DWD_CART, schemas.CART_INFO),
}
"""The shop's routes, by table."""


def load_routes(path: str, base: Mapping[str, Route] = ROUTES) -> dict[str, Route]:
    """Returns `base` extended by the routes in a file."""
    try:
        additions = json.loads(Path(path).read_text())
    except OSError as error:
        raise PipelineError(f"routes {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise PipelineError(f"routes {path}: not JSON: {error}") from error
    return extend_routes(base, additions, where=f"routes {path}")


def extend_routes(base: Mapping[str, Route], additions: Any, *, where: str = "routes") -> dict[str, Route]:
    """Returns `base` extended by routes in the format of the file."""
    if not isinstance(additions, dict):
        raise PipelineError(f"{where}: expected an object of routes by table, not {type(additions).__name__}")
    routes = dict(base)
    for table, route in additions.items():
        if not table or table != table.strip():
            raise PipelineError(f"{where}: {table!r} is not a valid table name")
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
        raise PipelineError(f"{where}: topic {topic!r} is not a valid topic name")
    if topic in (schemas.ODS_LOG, schemas.ODS_DB, *schemas.LOG_TOPICS):
        raise PipelineError(f"{where}: topic {topic} already has other rows; choose another topic")
    if columns is not None and (not isinstance(columns, str) or not columns.strip()):
        raise PipelineError(
            f"{where}: columns {columns!r}: expected a SQL schema, for example 'id BIGINT, name STRING'"
        )
    return Route(topic, columns)


def check_columns(table: str, names: list[str]) -> None:
    """Raises if a column has the name of a field that every row has."""
    for name in names:
        if name.lower() in _RESERVED:
            raise PipelineError(f"routes, table {table}: a column cannot be named {name!r}: this name is reserved")
