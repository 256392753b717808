"""Fault injection: delays, errors, and lost connections or responses for requests of one API.

    broker.faults.error(ApiKey.PRODUCE, NotLeaderForPartitionError, times=2)      the next two produces fail
    with broker.faults.delay(ApiKey.FETCH, 500) as fault: ...                     delays every fetch in the block
    fault.wait_for_hits(1)                                                        waits for the first affected request

Faults are tried in the order of their creation, and the first one that matches a request is applied. Any thread may add
and remove faults. The broker's event loop calls `intercept` and applies them.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from types import TracebackType

from headrace.broker.dispatch import Action, RequestContext
from headrace.broker.error_responses import error_response
from headrace.common.errors import HeadraceError, KafkaError
from headrace.protocol import ApiKey, Message

Proceed = Callable[[], None]


class Fault:
    """A fault for requests of one API. Leaving its `with` block, or `remove`, removes it."""

    def __init__(
        self,
        faults: "Faults",
        api: ApiKey,
        action: Action,
        times: int | None,
        when: Callable[[RequestContext], bool] | None,
    ):
        if times is not None and times < 1:
            raise HeadraceError(f"times must be at least 1, not {times}")
        self.api = api
        self.hits = 0
        """The number of requests that it was applied to."""
        self._faults = faults
        self._action = action
        self._times = times
        self._when = when
        self._hit = threading.Condition()

    def __str__(self) -> str:
        times = "" if self._times is None else f", times={self._times}"
        return f"{self._action} of {self.api.name}{times}"

    def match(self, context: RequestContext) -> Action | None:
        """Returns the action for a request; None if this fault does not apply to it."""
        if context.api.key != self.api or (self._when is not None and not self._when(context)):
            return None
        with self._hit:
            if self._times is not None and self.hits >= self._times:
                return None
            self.hits += 1
            if self.hits == self._times:
                self.remove()
            self._hit.notify_all()
        return self._action

    def wait_for_hits(self, hits: int = 1, timeout_ms: float = 30_000) -> None:
        """Waits until the fault was applied to this many requests. Raises TimeoutError."""
        with self._hit:
            if not self._hit.wait_for(lambda: self.hits >= hits, timeout_ms / 1000):
                raise TimeoutError(
                    f"The fault '{self}' was applied to {self.hits} requests, not {hits}, within {timeout_ms:g} ms"
                )

    def remove(self) -> None:
        """Removes the fault."""
        self._faults._remove(self)

    def __enter__(self) -> "Fault":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


class Faults:
    """The active faults of a broker. Calls `changed` after every change."""

    def __init__(self, changed: Callable[[], None] = lambda: None):
        self._faults: tuple[Fault, ...] = ()
        self._silenced: list[RequestContext] = []
        self._guard = threading.Lock()
        self._changed = changed

    def __bool__(self) -> bool:
        return bool(self._faults)

    def __len__(self) -> int:
        return len(self._faults)

    def __iter__(self) -> Iterator[Fault]:
        return iter(self._faults)

    # ---- adding and removing faults

    def delay(
        self, api: ApiKey, ms: int, times: int | None = None, when: Callable[[RequestContext], bool] | None = None
    ) -> Fault:
        """Delays the handling of a request. Later responses on the same connection wait for it."""
        if not isinstance(ms, int | float) or not ms >= 0:
            raise ValueError(f"ms={ms!r} is not valid: expected a number of milliseconds, at least 0")
        return self._add(api, Delay(ms), times, when)

    def error(
        self,
        api: ApiKey,
        error: type[KafkaError] | KafkaError | int,
        times: int | None = None,
        when: Callable[[RequestContext], bool] | None = None,
    ) -> Fault:
        """Responds with an error, in every error field of the response, without handling the request."""
        code = error if isinstance(error, int) else getattr(error, "code", None)
        if not isinstance(code, int):
            raise TypeError(f"{error!r} is not an error: expected a class of headrace.errors or an error code")
        return self._add(api, ResponseError(code), times, when)

    def drop_connection(
        self, api: ApiKey, times: int | None = None, when: Callable[[RequestContext], bool] | None = None
    ) -> Fault:
        """Closes the connection without handling the request."""
        return self._add(api, DropConnection(), times, when)

    def drop_reply(
        self,
        api: ApiKey,
        times: int | None = None,
        when: Callable[[RequestContext], bool] | None = None,
        *,
        close: bool = False,
    ) -> Fault:
        """Handles the request and drops its response. The connection stays open but silent, since responses keep their
        order; with `close`, the connection is closed instead."""
        return self._add(api, DropReply(None if close else self._silenced), times, when)

    def clear(self) -> None:
        """Removes all faults."""
        with self._guard:
            self._faults = ()
        self._changed()

    def close_silenced_connections(self) -> None:
        """Closes the connections whose responses were dropped, because a stopping broker would wait for the responses.

        Runs on the broker's event loop.
        """
        silenced, self._silenced[:] = list(self._silenced), []
        for context in silenced:
            context.close("the broker stops")

    def _add(
        self, api: ApiKey, action: Action, times: int | None, when: Callable[[RequestContext], bool] | None
    ) -> Fault:
        if not isinstance(api, int):
            raise TypeError(f"{api!r} is not an API: expected an ApiKey, such as ApiKey.FETCH")
        fault = Fault(self, ApiKey(api), action, times, when)
        with self._guard:
            self._faults = (*self._faults, fault)
        self._changed()
        return fault

    def _remove(self, fault: Fault) -> None:
        with self._guard:
            self._faults = tuple(other for other in self._faults if other is not fault)
        self._changed()

    # ---- for the dispatcher

    def intercept(self, context: RequestContext) -> Action | None:
        """Returns the action to apply to a request instead of handling it; None if no fault matches."""
        for fault in self._faults:
            action = fault.match(context)
            if action is not None:
                return action
        return None


class Delay:
    """Handles the request after a delay."""

    def __init__(self, ms: int):
        self.ms = ms

    def __str__(self) -> str:
        return f"delay by {self.ms} ms"

    def apply(self, context: RequestContext, request: Message, proceed: Proceed) -> None:  # noqa: ARG002
        def resume() -> None:
            if not context.connection.closed:
                proceed()

        asyncio.get_running_loop().call_later(self.ms / 1000, resume)


class ResponseError:
    """Responds with an error."""

    def __init__(self, code: int):
        self.code = code

    def __str__(self) -> str:
        return f"error {self.code}"

    def apply(self, context: RequestContext, request: Message, proceed: Proceed) -> None:  # noqa: ARG002
        if context.slot is None:
            context.close("fault injected by a test")
        else:
            context.reply(error_response(request, context.api_version, self.code))


class DropConnection:
    """Closes the connection."""

    def __str__(self) -> str:
        return "drop_connection"

    def apply(self, context: RequestContext, request: Message, proceed: Proceed) -> None:  # noqa: ARG002
        context.close("fault injected by a test")


class DropReply:
    """Handles the request and drops its response."""

    def __init__(self, silenced: list[RequestContext] | None):
        """With a list, adds the request to it and keeps the connection open. Without a list, closes the connection."""
        self._silenced = silenced

    def __str__(self) -> str:
        return "drop_reply"

    def apply(self, context: RequestContext, request: Message, proceed: Proceed) -> None:  # noqa: ARG002
        if context.slot is not None:
            context.slot = _LostReply(context, self._silenced)
        proceed()


class _LostReply:
    """Takes the place of the response. The real slot stays empty, so later responses are not sent either."""

    def __init__(self, context: RequestContext, silenced: list[RequestContext] | None):
        self._context = context
        self._silenced = silenced

    def send(self, reply: object) -> None:  # noqa: ARG002
        if self._silenced is None:
            self._context.close("fault injected by a test")
        else:
            self._silenced.append(self._context)
