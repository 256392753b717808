"""Logs behind fake brokers, for consumer tests in virtual time: Fetch with sessions, ListOffsets, leader epochs.

    logs = FakeLogs(brokers=2)
    logs.create("t", 3, leaders=[1, 2, 1])
    logs.append(("t", 0), b"a", b"b")
    async with logs.consumer(auto_offset_reset="earliest") as consumer: ...

A fetch without records is completed when records arrive, or after its `max_wait_ms`. Every fetch is checked as a broker
checks it: leader, leader epoch, session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from tests.support.client.fake_brokers import FakeBroker, FakeCluster, FakeNetwork, Received, partition

from headrace.aio import Consumer
from headrace.common.errors import (
    FencedLeaderEpochError,
    FetchSessionIdNotFoundError,
    InvalidFetchSessionEpochError,
    NotLeaderForPartitionError,
    OffsetOutOfRangeError,
    UnknownLeaderEpochError,
    UnknownTopicIdError,
)
from headrace.common.ids import ZERO_UUID, Uuid
from headrace.common.types import TopicPartition
from headrace.protocol import ApiKey, Message, encode_response
from headrace.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headrace.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from headrace.records import encode_rows

Place = tuple[str, int]


class LoopClock:
    """A clock with the time of the virtual loop."""

    def time_ms(self) -> int:
        return int(self.monotonic() * 1000)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def sleep(self, seconds: float) -> None:
        raise AssertionError("code on the loop must not sleep")


class FakeLog:
    """One partition: batches by their base offset."""

    def __init__(self, leader: int):
        self.leader = leader
        self.epoch = 0
        self.start = 0
        self.end = 0
        self.stable: int | None = None
        self.aborted: list[tuple[int, int]] = []
        self.batches: list[tuple[int, int, int, int, bytes]] = []
        """Base offset, next offset, epoch, timestamp, bytes."""
        self.error = 0
        """The error code of fetch responses."""
        self.preferred = -1
        """The preferred read replica."""
        self.follower_end: int | None = None
        """The end offset of the follower, if it is behind."""

    def read(self, offset: int, max_bytes: int) -> bytes:
        found = b""
        for _, next_offset, _, _, raw in self.batches:
            if next_offset > offset:
                if found and len(found) + len(raw) > max_bytes:
                    break
                found += raw
        return found

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Returns the largest epoch that is not above the requested one, and its end offset."""
        if epoch > self.epoch:
            return -1, -1
        known = [each[2] for each in self.batches if each[2] <= epoch]
        if not known:
            return -1, -1
        largest = max(known)
        later = [each[0] for each in self.batches if each[2] > largest]
        return largest, min(later, default=self.end)


class FakeLogs:
    def __init__(self, brokers: int = 1):
        self.cluster = FakeCluster(brokers)
        self.logs: dict[Place, FakeLog] = {}
        self.former: dict[Place, FakeLog] = {}
        """Logs of former leaders that do not know that they were replaced."""
        self.ids: dict[str, Uuid] = {}
        self.sessions: dict[tuple[int, int], tuple[int, dict[tuple[Any, int], FetchPartition]]] = {}
        self._given: dict[int, int] = {}
        """The session ids of full requests."""
        self.has_sessions = True
        self.waiting: list[tuple[FakeBroker, Received, asyncio.TimerHandle]] = []
        self.fetched: list[tuple[int, dict[Place, int]]] = []
        """For each fetch: the broker, and offsets by partition, including those of the session."""
        self.before_reply: Callable[[FakeBroker, FetchResponse], None] | None = None
        for broker in self.cluster.brokers:
            broker.on(ApiKey.FETCH, lambda request, broker=broker: self._fetch(broker, request))
            broker.on(ApiKey.LIST_OFFSETS, lambda request, broker=broker: self._list_offsets(broker, request))
            broker.on(ApiKey.OFFSET_FOR_LEADER_EPOCH, lambda request, broker=broker: self._epochs(broker, request))

    @property
    def network(self) -> FakeNetwork:
        return self.cluster.network

    def broker(self, broker_id: int) -> FakeBroker:
        return self.cluster.brokers[broker_id - 1]

    def consumer(self, *topics: str, **settings: Any) -> Consumer:
        host, port = self.cluster.bootstrap[0]
        return Consumer(*topics, bootstrap_servers=f"{host}:{port}", clock=LoopClock(), dialer=self.network, **settings)

    # ---- for tests

    def create(self, topic: str, partitions: int = 1, leaders: Iterable[int] = (), with_id: bool = True) -> None:
        chosen = list(leaders) or [1] * partitions
        self.ids[topic] = Uuid(int=1000 + len(self.ids)) if with_id else ZERO_UUID
        for index in range(partitions):
            self.logs[topic, index] = FakeLog(chosen[index])
        self.publish_metadata(topic)

    def add_partition(self, topic: str, leader: int = 1) -> int:
        index = sum(name == topic for name, _ in self.logs)
        self.logs[topic, index] = FakeLog(leader)
        self.publish_metadata(topic)
        return index

    def publish_metadata(self, topic: str) -> None:
        """Lets metadata responses show the current state."""
        found = [partition(index, log.leader, log.epoch) for (name, index), log in self.logs.items() if name == topic]
        self.cluster.set_topic(topic, found, topic_id=self.ids[topic])

    def move(self, place: Place, leader: int, publish: bool = True) -> None:
        """Makes another broker the leader."""
        self.logs[place].leader = leader
        self.logs[place].epoch += 1
        if publish:
            self.publish_metadata(place[0])

    def append(self, place: Place, *values: bytes | None, timestamp: int = 1000, **fields: Any) -> None:
        log = self.logs[place]
        rows = [(b"k", value, timestamp, None) for value in values]
        raw = bytes(encode_rows(rows, base_offset=log.end, leader_epoch=log.epoch, **fields))
        self.append_raw(place, raw, len(values), timestamp)

    def append_raw(self, place: Place, raw: bytes, count: int, timestamp: int = 1000) -> None:
        log = self.logs[place]
        log.batches.append((log.end, log.end + count, log.epoch, timestamp, raw))
        log.end += count
        self.complete_fetches()

    def truncate(self, place: Place, end: int) -> None:
        log = self.logs[place]
        log.batches = [each for each in log.batches if each[1] <= end]
        log.end = end

    def complete_fetches(self) -> None:
        """Completes waiting fetches."""
        waiting, self.waiting = self.waiting, []
        for broker, received, timer in waiting:
            timer.cancel()
            self._complete(broker, received)

    def requested_offsets(self, place: Place) -> list[int]:
        return [asked[place] for _, asked in self.fetched if place in asked]

    def isolate_leader(self, place: Place, end: int, leader: int) -> None:
        """Makes another broker the leader. The former one does not learn of it, and has records up to `end`; the
        metadata still names it."""
        log = self.logs[place]
        former = self.former[place] = FakeLog(log.leader)
        former.epoch, former.end = log.epoch, end
        former.batches = [each for each in log.batches if each[1] <= end]
        self.move(place, leader, publish=False)

    # ---- requests

    def _log(self, broker: FakeBroker, place: Place) -> FakeLog:
        """Returns a log as a broker knows it."""
        former = self.former.get(place)
        return former if former is not None and former.leader == broker.id else self.logs[place]

    def _fetch(self, broker: FakeBroker, request: FetchRequest) -> Message | None:
        received = broker.requests[-1]
        response, is_empty = self._read(broker, request, received.version)
        if is_empty and request.max_wait_ms:
            wait = request.max_wait_ms / 1000
            timer = asyncio.get_running_loop().call_later(wait, self._expire, broker, received)
            self.waiting.append((broker, received, timer))
            return None
        return self._finished(broker, response)

    def _expire(self, broker: FakeBroker, received: Received) -> None:
        self.waiting = [each for each in self.waiting if each[1] is not received]
        self._complete(broker, received)

    def _complete(self, broker: FakeBroker, received: Received) -> None:
        response, _ = self._read(broker, received.message, received.version, again=True)
        encoded = encode_response(self._finished(broker, response), received.version, received.correlation_id)
        if not received.connection.closed:
            received.connection.deliver(encoded if isinstance(encoded, bytes) else b"".join(encoded))  # type: ignore[arg-type]

    def _finished(self, broker: FakeBroker, response: FetchResponse) -> FetchResponse:
        if self.before_reply is not None:
            self.before_reply(broker, response)
        return response

    def _session(
        self, broker: FakeBroker, request: FetchRequest, again: bool
    ) -> tuple[int, dict[tuple[Any, int], FetchPartition], int]:
        """Returns session id, partitions and error code of a session."""
        asked = {
            (topic.topic_id if topic.topic_id != ZERO_UUID else topic.topic, part.partition): part
            for topic in request.topics
            for part in topic.partitions
        }
        if request.session_epoch == -1 or not self.has_sessions:
            return 0, asked, 0
        if request.session_epoch == 0:
            if not again:
                self.sessions.pop((broker.id, request.session_id), None)
                self._given[id(request)] = 101 + len(self._given)
                self.sessions[broker.id, self._given[id(request)]] = (1, asked)
            return self._given[id(request)], asked, 0
        found = self.sessions.get((broker.id, request.session_id))
        if found is None:
            return 0, {}, FetchSessionIdNotFoundError.code
        epoch, known_parts = found
        if not again:
            if request.session_epoch != epoch:
                return 0, {}, InvalidFetchSessionEpochError.code
            for topic in request.forgotten_topics_data:
                for index in topic.partitions:
                    key = (topic.topic_id if topic.topic_id != ZERO_UUID else topic.topic, index)
                    assert key in known_parts, f"{key} was forgotten but is not in the session"
                    del known_parts[key]
            known_parts.update(asked)
            self.sessions[broker.id, request.session_id] = (epoch + 1, known_parts)
        return request.session_id, known_parts, 0

    def _read(
        self, broker: FakeBroker, request: FetchRequest, version: int, again: bool = False
    ) -> tuple[FetchResponse, bool]:
        session_id, wanted, error = self._session(broker, request, again)
        if error:
            return FetchResponse(error_code=error), False
        names = {topic_id: name for name, topic_id in self.ids.items()}
        places = {(names.get(key, key), index): part for (key, index), part in wanted.items()}
        if not again:
            self.fetched.append((broker.id, {place: part.fetch_offset for place, part in places.items()}))
        is_empty = True
        topics: dict[str, list[PartitionData]] = {}
        for place, part in places.items():
            if place in self.logs:
                data = self._partition(broker, place, part)
            else:
                data = PartitionData(partition_index=place[1], error_code=UnknownTopicIdError.code)
            if data.error_code or data.records or data.preferred_read_replica >= 0:
                is_empty = False
            elif request.session_epoch > 0:
                continue
            topics.setdefault(place[0], []).append(data)
        return (
            FetchResponse(
                session_id=session_id,
                responses=[
                    FetchableTopicResponse(topic=str(name), topic_id=self.ids.get(name, name), partitions=parts)
                    for name, parts in topics.items()
                ],
            ),
            is_empty,
        )

    def _partition(self, broker: FakeBroker, place: Place, part: FetchPartition) -> PartitionData:
        log = self._log(broker, place)
        data = PartitionData(partition_index=place[1], high_watermark=log.end, log_start_offset=log.start)
        data.last_stable_offset = log.end if log.stable is None else log.stable
        is_follower = broker.id == log.preferred
        if log.error:
            data.error_code = log.error
        elif broker.id != log.leader and not is_follower:
            data.error_code = NotLeaderForPartitionError.code
        elif -1 < part.current_leader_epoch < log.epoch:
            data.error_code = FencedLeaderEpochError.code
        elif part.current_leader_epoch > log.epoch:
            data.error_code = UnknownLeaderEpochError.code
        elif (
            not log.start
            <= part.fetch_offset
            <= (log.follower_end if is_follower and log.follower_end is not None else log.end)
        ):
            data.error_code = OffsetOutOfRangeError.code
        elif log.preferred >= 0 and not is_follower:
            data.preferred_read_replica = log.preferred
        else:
            data.records = log.read(part.fetch_offset, part.partition_max_bytes)
            data.aborted_transactions = [
                AbortedTransaction(producer_id=producer, first_offset=first) for producer, first in log.aborted
            ]
        return data

    def _list_offsets(self, broker: FakeBroker, request: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            parts = []
            for each in topic.partitions:
                log = self._log(broker, (topic.name, each.partition_index))
                found = ListOffsetsPartitionResponse(partition_index=each.partition_index, leader_epoch=log.epoch)
                if broker.id != log.leader:
                    found.error_code = NotLeaderForPartitionError.code
                elif each.timestamp == -2:
                    found.offset = log.start
                elif each.timestamp == -1:
                    found.offset = log.stable if request.isolation_level and log.stable is not None else log.end
                else:
                    newer = [batch for batch in log.batches if batch[3] >= each.timestamp]
                    if newer:
                        found.offset, found.timestamp = newer[0][0], newer[0][3]
                parts.append(found)
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=parts))
        return ListOffsetsResponse(topics=topics)

    def _epochs(self, broker: FakeBroker, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        topics = []
        for topic in request.topics:
            parts = []
            for each in topic.partitions:
                log = self._log(broker, (topic.topic, each.partition))
                found = EpochEndOffset(partition=each.partition)
                if broker.id != log.leader:
                    found.error_code = NotLeaderForPartitionError.code
                elif each.current_leader_epoch < log.epoch:
                    found.error_code = FencedLeaderEpochError.code
                else:
                    found.leader_epoch, found.end_offset = log.end_of_epoch(each.leader_epoch)
                parts.append(found)
            topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=parts))
        return OffsetForLeaderEpochResponse(topics=topics)


def tps(*places: Place) -> list[TopicPartition]:
    return [TopicPartition(*place) for place in places]
