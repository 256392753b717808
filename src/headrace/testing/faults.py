"""What can go wrong between a client and a broker, on order.

    broker.faults.error(ApiKey.PRODUCE, NotLeaderForPartitionError, times=2)      the next two produces fail
    with broker.faults.delay(ApiKey.FETCH, 500) as fault: ...                     every fetch takes longer, in the block
    fault.wait_for_hits(1)                                                        until one was struck

Faults of one API are tried in the order that they were made; the first that applies is the one that strikes. Orders may
be given from any thread; the broker's loop asks `intercept`, and carries out.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from types import TracebackType

from headrace.broker.dispatch import Action, RequestContext
from headrace.broker.error_replies import error_reply
from headrace.common.errors import HeadraceError, KafkaError
from headrace.protocol import ApiKey, Message

Proceed = Callable[[], None]


class Fault:
    """One order. Leave its `with` block, or call `remove`, to take it back."""

    def __init__(
        self,
        faults: "Faults",
        api: ApiKey,
        action: Action,
        times: int | None,
        when: Callable[[RequestContext], bool] | None,
    ):
        if times is not None and times < 1:
            raise HeadraceError(f"a fault strikes at least once, not {times} times")
        self.api = api
        self.hits = 0
        """How many requests it has struck."""
        self._faults = faults
        self._action = action
        self._times = times
        self._when = when
        self._struck = threading.Condition()

    def __str__(self) -> str:
        times = "" if self._times is None else f", times={self._times}"
        return f"{self._action} of {self.api.name}{times}"

    def strike(self, context: RequestContext) -> Action | None:
        """What happens to a request, if this fault is for it."""
        if context.api.key != self.api or (self._when is not None and not self._when(context)):
            return None
        with self._struck:
            if self._times is not None and self.hits >= self._times:
                return None
            self.hits += 1
            if self.hits == self._times:
                self.remove()
            self._struck.notify_all()
        return self._action

    def wait_for_hits(self, hits: int = 1, timeout_seconds: float = 30.0) -> None:
        """Until it has struck so often."""
        with self._struck:
            if not self._struck.wait_for(lambda: self.hits >= hits, timeout_seconds):
                raise TimeoutError(f"the fault of {self.api.name} has struck {self.hits} times, not {hits}")

    def remove(self) -> None:
        """It strikes no more."""
        self._faults._remove(self)

    def __enter__(self) -> "Fault":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


class Faults:
    """The orders that are in force for a broker. `changed` is called when the first comes and when the last goes."""

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

    # ---- orders

    def delay(
        self, api: ApiKey, ms: int, times: int | None = None, when: Callable[[RequestContext], bool] | None = None
    ) -> Fault:
        """The request waits before it is handled. So do, on its connection, the replies to those behind it."""
        return self._add(api, Delay(ms), times, when)

    def error(
        self,
        api: ApiKey,
        error: type[KafkaError] | KafkaError | int,
        times: int | None = None,
        when: Callable[[RequestContext], bool] | None = None,
    ) -> Fault:
        """The request is not handled, and answered with an error everywhere that its reply has a place for one."""
        code = error if isinstance(error, int) else getattr(error, "code", None)
        if not isinstance(code, int):
            raise TypeError(f"{error!r} is not an error: expected a class of headrace.common.errors or a code")
        return self._add(api, ReplyError(code), times, when)

    def drop_connection(
        self, api: ApiKey, times: int | None = None, when: Callable[[RequestContext], bool] | None = None
    ) -> Fault:
        """The connection is closed and the request not handled."""
        return self._add(api, DropConnection(), times, when)

    def drop_reply(
        self,
        api: ApiKey,
        times: int | None = None,
        when: Callable[[RequestContext], bool] | None = None,
        *,
        close: bool = False,
    ) -> Fault:
        """The request is handled and its reply lost. The connection stays open and silent, since later replies come
        after it; with `close` it is closed instead of the reply."""
        return self._add(api, DropReply(None if close else self._silenced), times, when)

    def clear(self) -> None:
        """Takes all orders back."""
        with self._guard:
            self._faults = ()
        self._changed()

    def hang_up(self) -> None:
        """Closes the connections that dropped replies have silenced, on the broker's loop: a broker that stops would
        wait for those replies."""
        silenced, self._silenced[:] = list(self._silenced), []
        for context in silenced:
            context.close("the broker stops")

    def _add(
        self, api: ApiKey, action: Action, times: int | None, when: Callable[[RequestContext], bool] | None
    ) -> Fault:
        fault = Fault(self, ApiKey(api), action, times, when)
        with self._guard:
            self._faults = (*self._faults, fault)
        self._changed()
        return fault

    def _remove(self, fault: Fault) -> None:
        with self._guard:
            self._faults = tuple(each for each in self._faults if each is not fault)
        self._changed()

    # ---- what the dispatcher asks

    def intercept(self, context: RequestContext) -> Action | None:
        """What is to happen to a request instead of being handled."""
        for fault in self._faults:
            action = fault.strike(context)
            if action is not None:
                return action
        return None


class Delay:
    def __init__(self, ms: int):
        self.ms = ms

    def __str__(self) -> str:
        return f"delay by {self.ms} ms"

    def apply(self, context: RequestContext, request: Message, proceed: Proceed) -> None:  # noqa: ARG002
        def go_on() -> None:
            if not context.connection.closed:
                proceed()

        asyncio.get_running_loop().call_later(self.ms / 1000, go_on)


class ReplyError:
    def __init__(self, code: int):
        self.code = code

    def __str__(self) -> str:
        return f"error {self.code}"

    def apply(self, context: RequestContext, request: Message, proceed: Proceed) -> None:  # noqa: ARG002
        if context.slot is None:
            context.close("a fault that a test asked for")
        else:
            context.reply(error_reply(request, context.api_version, self.code))


class DropConnection:
    def __str__(self) -> str:
        return "drop_connection"

    def apply(self, context: RequestContext, request: Message, proceed: Proceed) -> None:  # noqa: ARG002
        context.close("a fault that a test asked for")


class DropReply:
    def __init__(self, silenced: list[RequestContext] | None):
        """With a list, what has lost its reply is noted there; without, its connection is closed."""
        self._silenced = silenced

    def __str__(self) -> str:
        return "drop_reply"

    def apply(self, context: RequestContext, request: Message, proceed: Proceed) -> None:  # noqa: ARG002
        if context.slot is not None:
            context.slot = _LostReply(context, self._silenced)
        proceed()


class _LostReply:
    """Stands where the reply would go. The real place stays empty, so nothing behind it leaves either."""

    def __init__(self, context: RequestContext, silenced: list[RequestContext] | None):
        self._context = context
        self._silenced = silenced

    def send(self, reply: object) -> None:  # noqa: ARG002
        if self._silenced is None:
            self._context.close("a fault that a test asked for")
        else:
            self._silenced.append(self._context)
