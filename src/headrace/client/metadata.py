"""Keeps what a client knows of the cluster current, and asks for what it does not know. After librdkafka's ways.

- Three kinds of requests: for all topics (somebody subscribes to a pattern, or lists them), for some, and for brokers
  only (no topic matters). What is wanted within one turn of the loop goes into one request.
- A topic that is being asked for has a hint, so that nobody asks for it a second time meanwhile.
- Answers expire after `max_age_ms`, and are asked again if somebody wants the topic: one that is tracked (consumers'),
  or was used within `max_idle_ms` (producers'). Others are forgotten.
- A topic with a partition that has no leader is asked for again soon, after waits that grow exponentially.
- A topic that brokers do not know may be one that they have not heard of yet: for `propagation_max_ms` it is asked for
  again before anybody is told that there is none, and then now and then. Excluded topics do not exist.
- A broker that does not answer for long does not hold others up: what was asked of it is asked of another one.
- Whoever waits, waits for a condition on the view, with a deadline.

Belongs to the loop. `view` may be read from any thread, and `use` called.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from headrace.client.errors import KafkaTimeoutError, check
from headrace.client.metadata_cache import ClusterView, TopicInfo, changed_topics, merge
from headrace.client.metadata_schedule import MetadataSchedule
from headrace.common.backoff import Backoff
from headrace.common.errors import (
    InvalidTopicError,
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

__all__ = ["Metadata", "MetadataSettings"]

_logger = logging.getLogger(__name__)

_LONGEST_NAME = 249
_VALID_NAME = re.compile(r"[A-Za-z0-9._-]+")
_LONGEST_TICK_SECONDS = 10.0
_HEDGE_SECONDS = 5.0
"""After so long without an answer another broker is asked."""
_UNKNOWN_SECONDS = 10.0
"""How often a topic that is wanted, and that brokers have not known for long, is asked for."""

Listener = Callable[[ClusterView, ClusterView], None]
Condition = Callable[[ClusterView], object]


@dataclass(frozen=True)
class MetadataSettings:
    """Times in milliseconds."""

    max_age_ms: float = 300_000
    max_idle_ms: float = 300_000
    retry_backoff_ms: float = 100
    retry_backoff_max_ms: float = 1000
    fast_interval_ms: float = 100
    propagation_max_ms: float = 30_000
    rebootstrap_trigger_ms: float = 300_000
    allow_auto_create: bool = False
    excluded: tuple[str, ...] = ()
    """Regular expressions of topics that do not exist for this client."""


class Metadata:
    def __init__(
        self,
        pool: BrokerPool,
        settings: MetadataSettings,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        random: Random | None = None,
    ):
        self.view = ClusterView()
        """The current one; any thread may read it."""
        self.last_error: KafkaError | None = None
        """Why the last request failed; None after one that did not."""
        self._pool = pool
        self._settings = settings
        self._loop = loop or asyncio.get_running_loop()
        random = random or make_random()
        self._backoff = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, random)
        pace = Backoff(settings.fast_interval_ms, settings.retry_backoff_max_ms, random)
        self._schedule = MetadataSchedule(self._loop, pace, self._begin_round)
        self._excluded = tuple(re.compile(each) for each in settings.excluded)

        self._tracked: set[str] = set()
        self._tracks_all = False
        self._used: dict[str, float] = {}
        """Topics that were asked for by name, and when they were last used."""
        self._unknown_since: dict[str, float] = {}
        """Since when brokers say that they do not know a topic."""
        self._seen: set[str] = set()
        """Topics that existed when they were last asked for, or before."""
        self._failures = 0
        self._failing_since: float | None = None
        self._tick_timer: asyncio.TimerHandle | None = None
        self._rounds: set[asyncio.Task[None]] = set()

        self._listeners: list[Listener] = []
        self._waiters: list[tuple[Condition, asyncio.Future[ClusterView]]] = []
        self._answers: dict[str, list[asyncio.Future[TopicInfo]]] = {}
        self._closed = False

    # ---- who wants what

    def track(self, topics: Iterable[str]) -> None:
        """Keeps topics current until they are untracked; asks at once for those that are not known."""
        for name in topics:
            self._tracked.add(name)
            if not self._is_fresh(name):
                self._want(name)

    def untrack(self, topics: Iterable[str]) -> None:
        self._tracked.difference_update(topics)

    def set_tracked(self, topics: Iterable[str]) -> None:
        """These and no others."""
        wanted = set(topics)
        self._tracked.intersection_update(wanted)
        self.track(wanted - self._tracked)

    @property
    def tracked(self) -> frozenset[str]:
        return frozenset(self._tracked)

    def track_all(self, on: bool = True) -> None:
        """Whether all topics of the cluster are kept current, for who subscribes to a pattern."""
        if on and not self._tracks_all and self._schedule.age_of_all_ms >= self._settings.max_age_ms:
            self._schedule.want_all()
        self._tracks_all = on

    def use(self, name: str) -> None:
        """Says that a topic is still of use to somebody who does not track it. May be called from any thread."""
        self._used[name] = self._loop.time()

    def is_excluded(self, name: str) -> bool:
        return any(each.search(name) for each in self._excluded)

    # ---- asking

    def request_update(self, topics: Iterable[str] | None = None) -> None:
        """Asks soon: for these topics, or for all that are wanted. Repeated requests wait longer and longer while they
        bring nothing new, so it may be called for every error that says that the view is old."""
        names = self._wanted_names() if topics is None else set(topics)
        for name in names:
            self._want(name, again=True)
        if topics is None:
            if self._tracks_all:
                self._schedule.want_all_again()
            elif not names:
                self._schedule.want_brokers()

    async def topic(self, name: str, timeout_ms: float) -> TopicInfo:
        """What is known of a topic; asks and waits if that is nothing, or too old.

        Raises UnknownTopicOrPartitionError if brokers keep saying that there is none, InvalidTopicError, the error of
        who may not see it, or KafkaTimeoutError if there is no answer in time.
        """
        check_name(name)
        if self.is_excluded(name):
            raise UnknownTopicOrPartitionError(f"topic {name} is excluded by this client's topic.blacklist")
        begun = self._loop.time()
        deadline = begun + timeout_ms / 1000
        self.use(name)
        info = self.view.topic(name)
        if info is not None and info.error is None and self._is_fresh(name):
            return info
        self._want(name, again=info is not None and info.error is not None)
        while True:
            info = await self._answer(name, deadline, timeout_ms)
            if info.error is None:
                return info
            if not info.error.retriable:
                raise info.error(f"topic {name}: {_words(info.error)}")
            if info.error is UnknownTopicOrPartitionError:
                # Where it may be created, the question may just have made it.
                since = begun if self._settings.allow_auto_create else self._unknown_since.get(name, begun)
                if self._age(since) >= self._settings.propagation_max_ms:
                    raise UnknownTopicOrPartitionError(f"the brokers know no topic {name}")
            self._want(name, again=True)

    async def _answer(self, name: str, deadline: float, timeout_ms: float) -> TopicInfo:
        """The next answer about a topic, of whatever kind."""
        future: asyncio.Future[TopicInfo] = self._loop.create_future()
        self._answers.setdefault(name, []).append(future)
        try:
            async with asyncio.timeout_at(deadline):
                return await future
        except TimeoutError:
            info = self.view.topic(name)
            if info is not None and info.error is UnknownTopicOrPartitionError:
                raise UnknownTopicOrPartitionError(f"the brokers know no topic {name}") from None
            raise self._timed_out(f"no metadata for topic {name}", timeout_ms) from None
        finally:
            waiting = self._answers.get(name, [])
            if future in waiting:
                waiting.remove(future)
            if not waiting:
                self._answers.pop(name, None)

    async def topic_by_id(self, topic_id: Uuid, timeout_ms: float) -> TopicInfo:
        """As `topic`, for an id. Raises UnknownTopicIdError at once if no topic has it."""
        name = self.view.topic_name(topic_id)
        if name is None:
            await self._now(ids=[topic_id], timeout_ms=timeout_ms)
            name = self.view.topic_name(topic_id)
            if name is None:
                raise UnknownTopicIdError(f"the brokers know no topic with id {topic_id}")
        return await self.topic(name, timeout_ms)

    async def update(self, topics: Iterable[str] | None = None, timeout_ms: float = 60_000) -> ClusterView:
        """Asks now, for these topics or for all that are wanted, and returns the view with the answer. Tries again
        while brokers cannot be reached. Raises KafkaTimeoutError."""
        names = self._wanted_names() if topics is None else set(topics)
        await self._now(names=names, is_full=topics is None and self._tracks_all, timeout_ms=timeout_ms)
        return self.view

    async def update_all(self, timeout_ms: float = 60_000) -> ClusterView:
        """Asks now for all topics of the cluster."""
        await self._now(is_full=True, timeout_ms=timeout_ms)
        return self.view

    async def update_brokers(self, timeout_ms: float = 60_000) -> ClusterView:
        """Asks now for the brokers, and for no topic."""
        await self._now(timeout_ms=timeout_ms)
        return self.view

    async def wait_for(self, condition: Condition, timeout_ms: float, what: str = "a change") -> ClusterView:
        """The first view that a condition holds for; the current one if it does. Raises KafkaTimeoutError."""
        if condition(self.view):
            return self.view
        future: asyncio.Future[ClusterView] = self._loop.create_future()
        entry = (condition, future)
        self._waiters.append(entry)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await future
        except TimeoutError:
            raise self._timed_out(f"waited for {what} of the cluster's metadata", timeout_ms) from None
        finally:
            if entry in self._waiters:
                self._waiters.remove(entry)

    async def wait_for_change(self, timeout_ms: float, since: int | None = None) -> ClusterView:
        """The next view after the current one, or after version `since`."""
        version = self.view.version if since is None else since
        return await self.wait_for(lambda view: view.version > version, timeout_ms)

    def on_change(self, listener: Listener) -> Callable[[], None]:
        """Calls a function with the old and the new view, on the loop, after each change. Returns what takes it off."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def note_leader(self, tp: TopicPartition, leader: int, leader_epoch: int, node: Node | None = None) -> bool:
        """A leader that a reply to Produce or Fetch has named (KIP-951). True if that was news."""
        new = self.view.with_leader(tp, leader, leader_epoch, node)
        if new is self.view:
            return False
        if node is not None:
            self._pool.add_node(node)
        self._swap(new)
        return True

    # ---- requests and their replies

    def _want(self, name: str, again: bool = False) -> None:
        if self._closed or self.is_excluded(name):
            return
        if again:
            self._schedule.want_again(name)
        else:
            self._schedule.want(name)

    def _begin_round(self, names: set[str], is_full: bool) -> None:
        task = self._loop.create_task(self._quietly(names, is_full))
        self._rounds.add(task)
        task.add_done_callback(self._rounds.discard)
        hedge = self._loop.call_later(_HEDGE_SECONDS, self._ask_another, names, task)
        task.add_done_callback(lambda _: hedge.cancel())

    def _ask_another(self, names: set[str], task: "asyncio.Task[None]") -> None:
        """A request has gone unanswered for long. It may still be answered; meanwhile another broker is asked."""
        if not task.done() and len(self._pool.nodes) > 1:
            self._schedule.drop_hints(names)

    async def _quietly(self, names: set[str], is_full: bool) -> None:
        try:
            await self._round(names, is_full)
        except Exception as error:
            if not isinstance(error, KafkaError):
                _logger.exception("a request for metadata could not be made")
            elif error.retriable:
                _logger.debug("no metadata: %s", error)
            if not (isinstance(error, KafkaError) and error.retriable):
                self._fail_answers(names, error)
            # Again, if somebody still wants it; not before its time, which `_round_failed` has set.
            for name in names & (self._wanted_names() | self._answers.keys()):
                self._schedule.want(name)
            if is_full and (self._tracks_all or not names):
                self._schedule.want_all()
            if not names and not is_full:
                self._schedule.want_brokers()

    def _fail_answers(self, names: set[str], error: Exception) -> None:
        """Waiting longer would not help those who wait for these topics."""
        for name in names:
            for future in self._answers.get(name, ()):
                if not future.done():
                    future.set_exception(error)

    async def _now(
        self,
        names: Iterable[str] = (),
        is_full: bool = False,
        ids: Iterable[Uuid] = (),
        timeout_ms: float = 60_000,
    ) -> None:
        """One round right away, and again until it succeeds or time is up."""
        attempt = 0
        asked, wanted_ids = set(names), list(ids)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while True:
                    try:
                        await self._round(asked, is_full, wanted_ids)
                        return
                    except KafkaError as error:
                        if not error.retriable or self._closed:
                            raise
                    await asyncio.sleep(self._backoff.wait_seconds(attempt))
                    attempt += 1
        except TimeoutError:
            raise self._timed_out("no metadata", timeout_ms) from None

    async def _round(self, names: set[str], is_full: bool, ids: Iterable[Uuid] = ()) -> None:
        ids = list(ids)
        self._keep_time()
        self._schedule.begin(names, is_full)
        try:
            request = MetadataRequest(
                topics=None
                if is_full
                else [
                    *(MetadataRequestTopic(name=name) for name in sorted(names)),
                    *(MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in ids),
                ],
                allow_auto_topic_creation=self._settings.allow_auto_create and not is_full and self._may_create(names),
            )
            reply: MetadataResponse = await self._pool.send_to_any(request, min_version=12 if ids else 1)
            if reply.error_code == RebootstrapRequiredError.code:
                self._pool.rebootstrap()
                raise KafkaConnectionError("a broker asked us to begin again at the bootstrap servers")
            check(reply.error_code)
            if not reply.brokers:
                raise KafkaConnectionError("a broker answered that it knows of no broker, not even itself")
        except KafkaError as error:
            self._round_failed(error)
            raise
        finally:
            self._schedule.end(names, is_full)
        self._round_succeeded(reply, names, is_full)

    def _may_create(self, names: set[str]) -> bool:
        """Whether brokers may create one of these: somebody waits for it, or has begun to track it and it was never
        there. What is only kept current must not come back from the dead when it is deleted."""
        return any(name in self._answers or (name in self._tracked and name not in self._seen) for name in names)

    def _round_failed(self, error: KafkaError) -> None:
        now = self._loop.time()
        self.last_error = error
        self._schedule.hold_until(now + self._backoff.wait_seconds(self._failures))
        self._failures += 1
        if self._failing_since is None:
            self._failing_since = now
        elif self._age(self._failing_since) >= self._settings.rebootstrap_trigger_ms and self._pool.nodes:
            _logger.info("no metadata for a long time: beginning again at the bootstrap servers")
            self._failing_since = now
            if self._pool.settings.rebootstrap:
                self._pool.rebootstrap()

    def _round_succeeded(self, reply: MetadataResponse, names: set[str], is_full: bool) -> None:
        self.last_error = None
        self._failures = 0
        self._failing_since = None
        self._schedule.answered_brokers()
        wanted = self._wanted_names() | self._answers.keys()
        old = self.view
        new = merge(old, reply, is_full=is_full, keep=wanted, is_excluded=self.is_excluded)
        answered = {each.name for each in reply.topics if each.name is not None}
        if is_full:
            self._schedule.answered_all(answered)
            answered |= wanted & new.topics.keys()
        for name in answered:
            info = new.topic(name)
            if info is not None:
                self._note_answer(info, old.topic(name), new.lacks_leader(info), name in wanted)
        self._pool.set_nodes(new.nodes.values())
        self._swap(new)
        for name in answered:
            info = new.topic(name)
            if info is not None:
                for future in self._answers.get(name, ()):
                    if not future.done():
                        future.set_result(info)
        self._schedule.ask_again(names)

    def _note_answer(self, info: TopicInfo, old: TopicInfo | None, lacks_leader: bool, is_wanted: bool) -> None:
        """Whether something is missing, and when to look again."""
        name, now = info.name, self._loop.time()
        if info.error is UnknownTopicOrPartitionError:
            self._unknown_since.setdefault(name, now)
        else:
            self._unknown_since.pop(name, None)
        is_missing = info.error is not None or lacks_leader
        if info.error is None:
            self._seen.add(name)
        self._schedule.answered(name, helped=not is_missing and info != old)
        if is_missing and is_wanted and (info.error is None or info.error.retriable):
            if self._age(self._unknown_since.get(name, now)) > self._settings.propagation_max_ms:
                self._schedule.want_at(name, now + _UNKNOWN_SECONDS)
            else:
                self._schedule.want_again(name)

    def _swap(self, new: ClusterView) -> None:
        old, self.view = self.view, new
        for listener in tuple(self._listeners):
            try:
                listener(old, new)
            except Exception:
                _logger.exception("a listener to metadata failed")
        for condition, future in tuple(self._waiters):
            if future.done():
                continue
            try:
                if condition(new):
                    future.set_result(new)
            except Exception as error:  # noqa: BLE001 - it is the waiter's own
                future.set_exception(error)

    # ---- growing old

    def _age(self, since: float) -> float:
        return (self._loop.time() - since) * 1000

    def _is_fresh(self, name: str) -> bool:
        return self._schedule.age_ms(name) < self._settings.max_age_ms

    def _wanted_names(self) -> set[str]:
        return self._tracked | self._used.keys()

    def _keep_time(self) -> None:
        if self._tick_timer is None and not self._closed:
            shortest = min(self._settings.max_age_ms, self._settings.max_idle_ms)
            seconds = min(_LONGEST_TICK_SECONDS, max(shortest / 10_000, 0.01))
            self._tick_timer = self._loop.call_later(seconds, self._tick)

    def _tick(self) -> None:
        """Forgets what nobody uses, and asks again for what is old."""
        settings = self._settings
        for name in [name for name, at in tuple(self._used.items()) if self._age(at) >= settings.max_idle_ms]:
            if name not in self._answers:
                del self._used[name]
        wanted = self._wanted_names()
        forgotten = [
            name
            for name in self.view.topics
            if name not in wanted and not self._is_fresh(name) and not (self._tracks_all and self.view.topic(name))
        ]
        for name in forgotten:
            self._schedule.forget(name)
            self._unknown_since.pop(name, None)
            self._seen.discard(name)
        if forgotten:
            _logger.debug("forgotten, for nobody uses them: %s", ", ".join(sorted(forgotten)))
            self._swap(self.view.without(set(forgotten)))
        for name in wanted:
            if name in self.view.topics and not self._is_fresh(name):
                self._want(name)
        if self._tracks_all and self._schedule.age_of_all_ms >= settings.max_age_ms:
            self._schedule.want_all()
        if self._schedule.age_of_brokers_ms >= settings.max_age_ms and self._schedule.is_quiet:
            self._schedule.want_brokers()
        self._tick_timer = None
        self._keep_time()

    # ---- the end

    def _timed_out(self, what: str, timeout_ms: float) -> KafkaTimeoutError:
        why = f"; the last error: {self.last_error}" if self.last_error is not None else ""
        return KafkaTimeoutError(f"{what} in {timeout_ms:.0f} ms{why}")

    async def close(self) -> None:
        self._closed = True
        self._schedule.close()
        if self._tick_timer is not None:
            self._tick_timer.cancel()
            self._tick_timer = None
        rounds: set[asyncio.Task[Any]] = set(self._rounds)
        for task in rounds:
            task.cancel()
        if rounds:
            await asyncio.wait(rounds)
        gone = KafkaConnectionError("the client is closed")
        for _, waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(gone)
        for futures in self._answers.values():
            for future in futures:
                if not future.done():
                    future.set_exception(gone)


def check_name(name: str) -> None:
    """Raises InvalidTopicError if no topic can have that name."""
    if not isinstance(name, str):
        raise InvalidTopicError(f"a topic's name is a str, not {name!r}")
    if name in ("", ".", "..") or len(name) > _LONGEST_NAME or _VALID_NAME.fullmatch(name) is None:
        raise InvalidTopicError(
            f"{name!r} cannot be the name of a topic: expected 1 to {_LONGEST_NAME} letters, digits, dots, underscores "
            "and dashes"
        )


def _words(error: type[KafkaError]) -> str:
    return (error.__doc__ or error.name).split("\n", 1)[0]


__all__ += ["changed_topics", "check_name"]
