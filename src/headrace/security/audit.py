"""The audit log `headrace.audit`: who tried to do what, from where, and whether it was allowed.

    Principal = User:alice is Denied operation = WRITE from host = 10.0.0.7 on resource = Topic:LITERAL:orders for
    request = PRODUCE

Denied attempts are logged at level INFO, allowed ones at DEBUG, as by Kafka's `kafka.authorizer.logger`. Within 10
seconds, equal attempts get one line, and a second one with their number. Different ones get at most 1000 lines.

Names come from clients: they are shortened, and `LineFormatter` escapes control characters. A line has no secrets: no
contents of requests. Owned by the broker's loop.
"""

import logging

from headrace.common.clock import Clock
from headrace.common.logs import AUDIT_LOGGER
from headrace.common.principal import Principal
from headrace.security.acls import Operation, Resource

_logger = logging.getLogger(AUDIT_LOGGER)

_INTERVAL_SECONDS = 10.0
_MAX_KINDS = 1000
_MAX_NAME_LENGTH = 300


class AuditLog:
    """Writes the decisions of an authorizer to the log."""

    def __init__(self, clock: Clock):
        self._clock = clock
        self._interval_end = 0.0
        self._suppressed: dict[str, int] = {}
        """The lines of this interval, and how often each was not logged again."""
        self._others = 0
        """How many attempts of further kinds were not logged."""

    @property
    def logs_allowed(self) -> bool:
        """True if the log has allowed access too. Ask before `record`, to save time."""
        return _logger.isEnabledFor(logging.DEBUG)

    def record(
        self, principal: Principal, host: str, operation: Operation, resource: Resource, request: str, *, allowed: bool
    ) -> None:
        """Logs the decision about one attempt. `request` is the name of the API, or empty."""
        if allowed:
            if self.logs_allowed:
                _logger.debug("%s", _line(principal, host, operation, resource, request, "Allowed"))
            return
        if not _logger.isEnabledFor(logging.INFO):
            return
        now = self._clock.monotonic()
        if now >= self._interval_end:
            self._end_interval()
            self._interval_end = now + _INTERVAL_SECONDS
        line = _line(principal, host, operation, resource, request, "Denied")
        if line in self._suppressed:
            self._suppressed[line] += 1
        elif len(self._suppressed) < _MAX_KINDS:
            self._suppressed[line] = 0
            _logger.info("%s", line)
        else:
            self._others += 1

    def _end_interval(self) -> None:
        """Logs how often the attempts of the last interval were repeated."""
        for line, count in self._suppressed.items():
            if count:
                _logger.info("%s (%d more times)", line, count)
        if self._others:
            _logger.info("%d more attempts of other kinds were Denied", self._others)
        self._suppressed.clear()
        self._others = 0


def _line(
    principal: Principal, host: str, operation: Operation, resource: Resource, request: str, decision: str
) -> str:
    return (
        f"Principal = {_short(str(principal))} is {decision} operation = {operation.name} from host = {host} "
        f"on resource = {resource.type.title}:LITERAL:{_short(resource.name)}"
        + (f" for request = {request}" if request else "")
    )


def _short(name: str) -> str:
    return name if len(name) <= _MAX_NAME_LENGTH else f"{name[:_MAX_NAME_LENGTH]}..."
