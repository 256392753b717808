"""The pages' parts of the JSON API, a module each."""

from headrace.console.api import overview, session
from headrace.console.routing import Router

ROUTERS: tuple[Router, ...] = (session.router, overview.router)
"""All routes, in the order of the OpenAPI description."""
