"""The pages' parts of the JSON API, a module each."""

from headrace.console.api import overview, records, session
from headrace.console.routing import Router

ROUTERS: tuple[Router, ...] = (session.router, overview.router, records.router)
"""All routes, in the order of the OpenAPI description."""
