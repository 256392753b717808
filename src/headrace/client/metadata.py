"""A client's metadata: refreshes the view of the cluster and requests unknown topics. Modelled on librdkafka.

- There are three kinds of Metadata requests: for all topics (a subscription by pattern, or listing topics), for some
  topics, and for the brokers only. Everything requested within one iteration of the loop goes into one request.
- While a request for a topic is in flight, no second request for it is sent.
- A topic's metadata expires after `max_age_ms`. It is refreshed if the topic is tracked (consumers) or was used within
  `max_idle_ms` (producers), and forgotten otherwise.
- A topic with a leaderless partition is refreshed soon, with exponential back-off.
- A topic unknown to the brokers may be a new one that they have not learned of yet. The client retries for
  `propagation_max_ms` before it reports the topic as unknown, and occasionally after that.
- Excluded topics are treated as if they did not exist.
- If a broker does not respond for long, the same metadata is requested from another broker.
- A caller waits for a condition on the view, with a deadline.

Owner: the loop. Any thread may read `view` and call `use`.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from headrace.client.errors import InvalidTopicNameError, KafkaTimeoutError, check
from headrace.client.metadata_cache import ClusterView, TopicInfo, changed_topics, merge
from headrace.client.metadata_schedule import MetadataSchedule
from headrace.common.backoff import Backoff
from headrace.common.errors import (
    KafkaError,
    RebootstrapRequiredError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from headrace.common.ids import Random, Uuid, make_random
from headrace.common.types import TopicPartition
from headrace.net.broker_pool import BrokerPool, Node
from headrace.net.errors import KafkaConnectionError
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

__all__ = ["Metadata", "MetadataConfig"]

_logger = logging.getLogger(__name__)

_LONGEST_NAME = 249
_VALID_NAME = re.compile(r"[A-Za-z0-9._-]+")
_LONGEST_TICK_SECONDS = 10.0
_HEDGE_SECONDS = 5.0
"""The time without a response after which the request goes to another broker."""
_UNKNOWN_SECONDS = 10.0
"""How often a topic that has been unknown to the brokers for long is requested."""

Listener = Callable[[ClusterView, ClusterView], None]
Condition = Callable[[ClusterView], object]


@dataclass(frozen=True)
class MetadataConfig:
    """The configuration of `Metadata`."""

    max_age_ms: float = 300_000
    max_idle_ms: float = 300_000
    retry_backoff_ms: float = 100
    retry_backoff_max_ms: float = 1000
    fast_interval_ms: float = 100
    propagation_max_ms: float = 30_000
    rebootstrap_trigger_ms: float = 300_000
    allow_auto_create: bool = False
    excluded: tuple[str, ...] = ()
    """Regular expressions. Matching topics do not exist for this client."""


class Metadata:
    """The current view of the cluster, and the requests that keep it current."""

    def __init__(
        self,
        pool: BrokerPool,
        config: MetadataConfig,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        random: Random | None = None,
    ):
        self.view = ClusterView()
        """The current view. Any thread may read it."""
        self.last_error: KafkaError | None = None
        """The error of the last request, or None after a success."""
        self._pool = pool
        self._config = config
        self._loop = loop or asyncio.get_running_loop()
        random = random or make_random()
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, random)
        pace = Backoff(config.fast_interval_ms, config.retry_backoff_max_ms, random)
        self._schedule = MetadataSchedule(self._loop, pace, self._start_request)
        self._excluded = tuple(re.compile(pattern) for pattern in config.excluded)

        self._tracked: set[str] = set()
        self._tracks_all = False
        self._used: dict[str, float] = {}
        """When each topic requested by name was last used."""
        self._unknown_since: dict[str, float] = {}
        """Since when a topic has been unknown to the brokers."""
        self._seen: set[str] = set()
        """Topics that existed at some refresh."""
        self._failures = 0
        self._failing_since: float | None = None
        self._tick_timer: asyncio.TimerHandle | None = None
        self._requests: set[asyncio.Task[None]] = set()

        self._listeners: list[Listener] = []
        self._waiters: list[tuple[Condition, asyncio.Future[ClusterView]]] = []
        self._response_waiters: dict[str, list[asyncio.Future[TopicInfo]]] = {}
        self._closed = False

    # ---- topics to keep current

    def track(self, topics: Iterable[str]) -> None:
        """Keeps topics current until they are untracked. Requests unknown topics at once."""
        for name in topics:
            self._tracked.add(name)
            if not self._is_fresh(name):
                self._request(name)

    def untrack(self, topics: Iterable[str]) -> None:
        """Stops keeping topics current."""
        self._tracked.difference_update(topics)

    def set_tracked(self, topics: Iterable[str]) -> None:
        """Tracks exactly these topics."""
        names = set(topics)
        self._tracked.intersection_update(names)
        self.track(names - self._tracked)

    @property
    def tracked(self) -> frozenset[str]:
        return frozenset(self._tracked)

    def track_all(self, on: bool = True) -> None:
        """Starts or stops keeping all topics of the cluster current, for a subscription by pattern."""
        if on and not self._tracks_all and self._schedule.age_of_all_ms >= self._config.max_age_ms:
            self._schedule.request_all()
        self._tracks_all = on

    def use(self, name: str) -> None:
        """Notes that an untracked topic is in use. Any thread may call it."""
        self._used[name] = self._loop.time()

    def is_excluded(self, name: str) -> bool:
        return any(pattern.search(name) for pattern in self._excluded)

    # ---- refreshing

    def request_update(self, topics: Iterable[str] | None = None) -> None:
        """Schedules a refresh of these topics, or of all topics in use.

        Repeated refreshes wait longer and longer while they bring nothing new, so callers may call this for every error
        that indicates stale metadata.
        """
        names = self._names_in_use() if topics is None else set(topics)
        for name in names:
            self._request(name, again=True)
        if topics is None:
            if self._tracks_all:
                self._schedule.retry_all()
            elif not names:
                self._schedule.request_brokers()

    async def topic(self, name: str, timeout_ms: float) -> TopicInfo:
        """Returns a topic's metadata. Requests it and waits if it is unknown or expired.

        Raises UnknownTopicOrPartitionError if the topic stays unknown to the brokers, InvalidTopicError, an
        authorization error, or KafkaTimeoutError.
        """
        check_name(name)
        if self.is_excluded(name):
            raise UnknownTopicOrPartitionError(f"Topic {name!r} is excluded by this client's topic.blacklist")
        started_at = self._loop.time()
        deadline = started_at + timeout_ms / 1000
        self.use(name)
        info = self.view.topic(name)
        if info is not None and info.error is None and self._is_fresh(name):
            return info
        self._request(name, again=info is not None and info.error is not None)
        while True:
            info = await self._next_response(name, deadline, timeout_ms)
            if info.error is None:
                return info
            if not info.error.retriable:
                raise info.error(f"Topic {name!r}: {_describe(info.error)}")
            if info.error is UnknownTopicOrPartitionError:
                # With auto-creation, this very request may have created it.
                since = started_at if self._config.allow_auto_create else self._unknown_since.get(name, started_at)
                if self._age(since) >= self._config.propagation_max_ms:
                    raise UnknownTopicOrPartitionError(f"Topic {name!r} does not exist")
            self._request(name, again=True)

    async def _next_response(self, name: str, deadline: float, timeout_ms: float) -> TopicInfo:
        """Waits for the next response about a topic, whatever it says."""
        future: asyncio.Future[TopicInfo] = self._loop.create_future()
        self._response_waiters.setdefault(name, []).append(future)
        try:
            async with asyncio.timeout_at(deadline):
                return await future
        except TimeoutError:
            info = self.view.topic(name)
            if info is not None and info.error is UnknownTopicOrPartitionError:
                raise UnknownTopicOrPartitionError(f"Topic {name!r} does not exist") from None
            raise self._timed_out(f"Topic {name!r} not present in metadata after", timeout_ms) from None
        finally:
            futures = self._response_waiters.get(name, [])
            if future in futures:
                futures.remove(future)
            if not futures:
                self._response_waiters.pop(name, None)

    async def topic_by_id(self, topic_id: Uuid, timeout_ms: float) -> TopicInfo:
        """Returns a topic's metadata by id. Raises UnknownTopicIdError at once if no topic has the id."""
        name = self.view.topic_name(topic_id)
        if name is None:
            await self._now(ids=[topic_id], timeout_ms=timeout_ms)
            name = self.view.topic_name(topic_id)
            if name is None:
                raise UnknownTopicIdError(f"No topic has the id {topic_id}")
        return await self.topic(name, timeout_ms)

    async def update(self, topics: Iterable[str] | None = None, timeout_ms: float = 60_000) -> ClusterView:
        """Refreshes these topics, or all topics in use, now, and returns the new view. Retries while no broker is
        reachable. Raises KafkaTimeoutError."""
        names = self._names_in_use() if topics is None else set(topics)
        await self._now(names=names, is_full=topics is None and self._tracks_all, timeout_ms=timeout_ms)
        return self.view

    async def update_all(self, timeout_ms: float = 60_000) -> ClusterView:
        """Refreshes all topics of the cluster now."""
        await self._now(is_full=True, timeout_ms=timeout_ms)
        return self.view

    async def update_brokers(self, timeout_ms: float = 60_000) -> ClusterView:
        """Refreshes the list of brokers now, and no topic."""
        await self._now(timeout_ms=timeout_ms)
        return self.view

    async def wait_for(self, condition: Condition, timeout_ms: float, what: str = "a change") -> ClusterView:
        """Waits for a view that meets a condition and returns it. Raises KafkaTimeoutError."""
        if condition(self.view):
            return self.view
        future: asyncio.Future[ClusterView] = self._loop.create_future()
        entry = (condition, future)
        self._waiters.append(entry)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await future
        except TimeoutError:
            raise self._timed_out(f"Metadata did not show {what} within", timeout_ms) from None
        finally:
            if entry in self._waiters:
                self._waiters.remove(entry)

    async def wait_for_change(self, timeout_ms: float, since: int | None = None) -> ClusterView:
        """Waits for the next view after the current one, or after version `since`."""
        version = self.view.version if since is None else since
        return await self.wait_for(lambda view: view.version > version, timeout_ms)

    def on_change(self, listener: Listener) -> Callable[[], None]:
        """Calls a function on the loop with the old and the new view after each change. Returns a function that removes
        the listener."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def note_leader(self, tp: TopicPartition, leader: int, leader_epoch: int, node: Node | None = None) -> bool:
        """Applies a leader named in a Produce or Fetch response (KIP-951). Returns True if it was new."""
        new = self.view.with_leader(tp, leader, leader_epoch, node)
        if new is self.view:
            return False
        if node is not None:
            self._pool.add_node(node)
        self._swap(new)
        return True

    def note_leader_epoch(self, tp: TopicPartition, leader_epoch: int) -> None:
        """Notes that a partition has had a leader of this epoch. If the view is older, its leader was replaced: it is
        not used any more, and the new one is looked up."""
        new = self.view.with_leader_epoch(tp, leader_epoch)
        if new is self.view:
            return
        _logger.info(
            "Partition %s: leader epoch %d of the metadata is older than epoch %d; looking up the new leader",
            tp,
            self.view.leader_epoch(tp),
            leader_epoch,
        )
        self._swap(new)
        self.request_update((tp.topic,))

    # ---- requests and responses

    def _request(self, name: str, again: bool = False) -> None:
        if self._closed or self.is_excluded(name):
            return
        if again:
            self._schedule.retry(name)
        else:
            self._schedule.request(name)

    def _start_request(self, names: set[str], is_full: bool) -> None:
        task = self._loop.create_task(self._request_in_background(names, is_full))
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)
        hedge = self._loop.call_later(_HEDGE_SECONDS, self._request_from_another_broker, names, is_full, task)
        task.add_done_callback(lambda _: hedge.cancel())

    def _request_from_another_broker(self, names: set[str], is_full: bool, task: "asyncio.Task[None]") -> None:
        """If a request is still unanswered, requests its topics from another broker, too. The response may still
        arrive."""
        if not task.done() and len(self._pool.nodes) > 1:
            self._schedule.request_again(names, is_full)

    async def _request_in_background(self, names: set[str], is_full: bool) -> None:
        try:
            await self._send_request(names, is_full)
        except Exception as error:
            if not isinstance(error, KafkaError):
                _logger.exception("Metadata request for topics %s failed; retrying", sorted(names))
            elif error.retriable:
                _logger.debug("Metadata request failed: %s", error)
            if not (isinstance(error, KafkaError) and error.retriable):
                self._fail_waiters(names, error)
            # Retries the topics that are still needed, after the wait that `_request_failed` has set.
            for name in names & (self._names_in_use() | self._response_waiters.keys()):
                self._schedule.request(name)
            if is_full and (self._tracks_all or not names):
                self._schedule.request_all()
            if not names and not is_full:
                self._schedule.request_brokers()

    def _fail_waiters(self, names: set[str], error: Exception) -> None:
        """Fails the waiters for topics after an error that a retry does not fix."""
        for name in names:
            for future in self._response_waiters.get(name, ()):
                if not future.done():
                    future.set_exception(error)

    async def _now(
        self,
        names: Iterable[str] = (),
        is_full: bool = False,
        ids: Iterable[Uuid] = (),
        timeout_ms: float = 60_000,
    ) -> None:
        """Sends a request at once, and again until it succeeds or time is up."""
        attempt = 0
        topic_names, topic_ids = set(names), list(ids)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while True:
                    try:
                        await self._send_request(topic_names, is_full, topic_ids)
                        return
                    except KafkaError as error:
                        if not error.retriable or self._closed:
                            raise
                    await asyncio.sleep(self._backoff.wait_seconds(attempt))
                    attempt += 1
        except TimeoutError:
            raise self._timed_out("Failed to update metadata after", timeout_ms) from None

    async def _send_request(self, names: set[str], is_full: bool, ids: Iterable[Uuid] = ()) -> None:
        ids = list(ids)
        self._start_tick_timer()
        self._schedule.request_sent(names, is_full)
        try:
            request = MetadataRequest(
                topics=None
                if is_full
                else [
                    *(MetadataRequestTopic(name=name) for name in sorted(names)),
                    *(MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in ids),
                ],
                allow_auto_topic_creation=self._config.allow_auto_create and not is_full and self._may_create(names),
            )
            response: MetadataResponse = await self._pool.send_to_any(request, min_version=12 if ids else 1)
            if response.error_code == RebootstrapRequiredError.code:
                if self._pool.config.rebootstrap:
                    self._pool.rebootstrap()
                raise KafkaConnectionError("a broker requested that the client rebootstrap")
            check(response.error_code)
            if not response.brokers:
                raise KafkaConnectionError("a broker returned metadata without any broker")
        except KafkaError as error:
            self._request_failed(error)
            raise
        finally:
            self._schedule.request_finished(names, is_full)
        self._request_succeeded(response, names, is_full)

    def _may_create(self, names: set[str]) -> bool:
        """Returns True if brokers may create one of these topics: a caller waits for it, or it is tracked and never
        existed. A refresh must not recreate a deleted topic."""
        return any(
            name in self._response_waiters or (name in self._tracked and name not in self._seen) for name in names
        )

    def _request_failed(self, error: KafkaError) -> None:
        now = self._loop.time()
        self.last_error = error
        self._schedule.hold_until(now + self._backoff.wait_seconds(self._failures))
        self._failures += 1
        if self._failing_since is None:
            self._failing_since = now
        elif (
            self._pool.config.rebootstrap
            and self._pool.nodes
            and self._age(self._failing_since) >= self._config.rebootstrap_trigger_ms
        ):
            _logger.info(
                "Client %s: no metadata for %d ms, rebootstrapping",
                self._pool.config.client_id,
                self._config.rebootstrap_trigger_ms,
            )
            self._failing_since = now
            self._pool.rebootstrap()

    def _request_succeeded(self, response: MetadataResponse, names: set[str], is_full: bool) -> None:
        self.last_error = None
        self._failures = 0
        self._failing_since = None
        self._schedule.brokers_refreshed()
        in_use = self._names_in_use() | self._response_waiters.keys()
        old = self.view
        new = merge(old, response, is_full=is_full, keep=in_use, is_excluded=self.is_excluded)
        refreshed = {topic.name for topic in response.topics if topic.name is not None}
        if is_full:
            self._schedule.all_refreshed(refreshed)
            refreshed |= in_use & new.topics.keys()
        for name in refreshed:
            info = new.topic(name)
            if info is not None:
                self._note_response(info, old.topic(name), new.lacks_leader(info), name in in_use)
        self._pool.set_nodes(new.nodes.values())
        self._swap(new)
        for name in refreshed:
            info = new.topic(name)
            if info is not None:
                for future in self._response_waiters.get(name, ()):
                    if not future.done():
                        future.set_result(info)
        self._schedule.run_postponed_retries(names)

    def _note_response(self, info: TopicInfo, old: TopicInfo | None, lacks_leader: bool, is_in_use: bool) -> None:
        """Updates the refresh schedule of a topic after a response, and schedules a retry if something is missing."""
        name, now = info.name, self._loop.time()
        if info.error is UnknownTopicOrPartitionError:
            self._unknown_since.setdefault(name, now)
        else:
            self._unknown_since.pop(name, None)
        is_missing = info.error is not None or lacks_leader
        if info.error is None:
            self._seen.add(name)
        self._schedule.topic_refreshed(name, is_progress=not is_missing and info != old)
        if is_missing and is_in_use and (info.error is None or info.error.retriable):
            if self._age(self._unknown_since.get(name, now)) > self._config.propagation_max_ms:
                self._schedule.request_at(name, now + _UNKNOWN_SECONDS)
            else:
                self._schedule.retry(name)

    def _swap(self, new: ClusterView) -> None:
        old, self.view = self.view, new
        for listener in tuple(self._listeners):
            try:
                listener(old, new)
            except Exception:
                _logger.exception("Metadata listener %r failed; the metadata is updated all the same", listener)
        for condition, future in tuple(self._waiters):
            if future.done():
                continue
            try:
                if condition(new):
                    future.set_result(new)
            except Exception as error:  # noqa: BLE001 - raised by the waiter's condition
                future.set_exception(error)

    # ---- expiry

    def _age(self, since: float) -> float:
        return (self._loop.time() - since) * 1000

    def _is_fresh(self, name: str) -> bool:
        return self._schedule.age_ms(name) < self._config.max_age_ms

    def _names_in_use(self) -> set[str]:
        return self._tracked | self._used.keys()

    def _start_tick_timer(self) -> None:
        if self._tick_timer is None and not self._closed:
            shortest = min(self._config.max_age_ms, self._config.max_idle_ms)
            seconds = min(_LONGEST_TICK_SECONDS, max(shortest / 10_000, 0.01))
            self._tick_timer = self._loop.call_later(seconds, self._tick)

    def _tick(self) -> None:
        """Forgets unused topics and refreshes expired ones."""
        config = self._config
        for name in [name for name, used_at in tuple(self._used.items()) if self._age(used_at) >= config.max_idle_ms]:
            if name not in self._response_waiters:
                del self._used[name]
        in_use = self._names_in_use()
        forgotten = [
            name
            for name in self.view.topics
            if name not in in_use and not self._is_fresh(name) and not (self._tracks_all and self.view.topic(name))
        ]
        for name in forgotten:
            self._schedule.forget(name)
            self._unknown_since.pop(name, None)
            self._seen.discard(name)
        if forgotten:
            _logger.debug("Forgot unused topics: %s", ", ".join(sorted(forgotten)))
            self._swap(self.view.without(set(forgotten)))
        for name in in_use:
            if name in self.view.topics and not self._is_fresh(name):
                self._request(name)
        if self._tracks_all and self._schedule.age_of_all_ms >= config.max_age_ms:
            self._schedule.request_all()
        if self._schedule.age_of_brokers_ms >= config.max_age_ms and self._schedule.is_idle:
            self._schedule.request_brokers()
        self._tick_timer = None
        self._start_tick_timer()

    # ---- closing

    def _timed_out(self, message: str, timeout_ms: float) -> KafkaTimeoutError:
        reason = f"; the last error: {self.last_error}" if self.last_error is not None else ""
        return KafkaTimeoutError(f"{message} {timeout_ms:.0f} ms{reason}")

    async def close(self) -> None:
        """Cancels all requests and fails all waiters."""
        self._closed = True
        self._schedule.close()
        if self._tick_timer is not None:
            self._tick_timer.cancel()
            self._tick_timer = None
        requests: set[asyncio.Task[Any]] = set(self._requests)
        for task in requests:
            task.cancel()
        if requests:
            await asyncio.wait(requests)
        closed = KafkaConnectionError("the client is closed")
        for _, waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(closed)
        for futures in self._response_waiters.values():
            for future in futures:
                if not future.done():
                    future.set_exception(closed)


def check_name(name: str) -> None:
    """Raises InvalidTopicNameError if a topic cannot have this name."""
    if not isinstance(name, str):
        raise InvalidTopicNameError(f"Topic name must be a str, not {name!r}")
    if name in ("", ".", "..") or len(name) > _LONGEST_NAME or _VALID_NAME.fullmatch(name) is None:
        raise InvalidTopicNameError(
            f"Topic name {name!r} is invalid: expected 1 to {_LONGEST_NAME} letters, digits, '.', '_' and '-'"
        )


def _describe(error: type[KafkaError]) -> str:
    return (error.__doc__ or error.name).split("\n", 1)[0]


__all__ += ["changed_topics", "check_name"]
