"""The pages' parts of the JSON API, a module each."""

from headrace.console.api import (
    access,
    brokers,
    groups,
    history,
    overview,
    records,
    session,
    topics,
    transactions,
)
from headrace.console.routing import Router

ROUTERS: tuple[Router, ...] = (
    session.router,
    overview.router,
    history.router,
    topics.router,
    records.router,
    groups.router,
    brokers.router,
    access.router,
    transactions.router,
)
"""All routes, in the order of the OpenAPI description."""
