"""The pages' parts of the JSON API, a module each."""

from headrace.console.api import (
    access,
    alerts,
    brokers,
    groups,
    history,
    overview,
    pipelines,
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
    pipelines.router,
    alerts.router,
)
"""All routes, in the order of the OpenAPI description."""
