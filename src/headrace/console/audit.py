"""The audit log of the console: every login and every change, who made it, from where, and the outcome.

    console: User:alice from 10.0.0.7: create topic 'orders' of cluster default: done (partitions=3)

It goes to the logger `headrace.audit` at level INFO. It has no secrets: handlers choose what it says.
"""

import logging
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from headrace.common.logs import AUDIT_LOGGER, shorten

_logger = logging.getLogger(AUDIT_LOGGER)
_MAX_LENGTH = 500


def log_change(
    user: str, address: str, change: str, cluster: str | None, details: Mapping[str, Any], outcome: str
) -> None:
    """Logs a change or a refused one."""
    others = {name: value for name, value in details.items() if name != "target"}
    target = f" {shorten(str(details['target']))!r}" if "target" in details else ""
    where = "" if cluster is None else f" of cluster {cluster}"
    text = ", ".join(f"{name}={_short(value)}" for name, value in others.items())
    _logger.info(
        "console: %s from %s: %s%s%s: %s%s",
        shorten(user),
        address,
        change,
        target,
        where,
        outcome,
        f" ({text})" if text else "",
    )


def address_of(request: Request) -> str:
    """Returns the address that a request came from."""
    return "unknown" if request.client is None else request.client.host


def _short(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}..."
