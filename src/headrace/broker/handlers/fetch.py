"""Fetch: reads record batches from partitions.

Behavior:
- A consumer reads up to the high watermark, or with read_committed up to the last stable offset. A follower reads up to
  the log end.
- If fewer than `min_bytes` are available, the response is delayed by at most `max_wait_ms`.
- A consumer that exceeds its quota gets an empty response with a throttle time. A full fetch then creates no session.
  A fetch never reads more than the consumer's quota allows in all windows. Followers have no quota.
- A leader with `replica.selector.class` tells a consumer in another rack to fetch from a follower in that rack
  (`preferred_read_replica`). A follower serves consumers of version 11 and later up to its own high watermark.

Version notes (4 to 18):
- 4 has the isolation level (KIP-98)
- 5 has the log start offset (KIP-107)
- 7 has incremental fetch sessions (KIP-227)
- 9 has leader epochs (KIP-320)
- 10 has zstd (KIP-110)
- 11 has racks (KIP-392)
- 12 is flexible and has diverging epochs (KIP-595)
- 13 has topic ids (KIP-516)
- 15 has the replica state (KIP-903)
- 16 has the new leader in errors (KIP-951)
- 17 has directory ids (KIP-853)
- 18 has the reader's high watermark (KIP-1166)
"""

from collections.abc import Iterable, Iterator, Sequence

from headrace.broker.apis import HandlerResult, api
from headrace.broker.config.broker import BrokerConfig
from headrace.broker.dispatch import RequestContext
from headrace.broker.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchedPartition,
    FetchSession,
    FetchSessionCache,
)
from headrace.broker.fetching import (
    CONSUMER,
    DelayedFetch,
    FetchLimits,
    PartitionRead,
    Reads,
    fetch_isolation,
    read_partitions,
)
from headrace.broker.leader_hints import LeaderHints
from headrace.broker.long_fetch import LONG_FETCH, DelayedLongFetch, read_in_turns
from headrace.broker.replica_manager import ReplicaManager
from headrace.broker.required_rights import on_cluster, on_topic, requires
from headrace.broker.rights import TopicRights, is_allowed_on_cluster
from headrace.broker.yielding import InTurns, consumed_parts, parts
from headrace.cluster.metadata_image import MetadataImage
from headrace.common.errors import InvalidRequestError, KafkaError
from headrace.common.ids import Uuid
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from headrace.security.acls import Operation

_FIRST_WITH_SESSIONS = 7
_FIRST_WITH_RACKS = 11
_FIRST_WITH_TOPIC_IDS = 13
_FIRST_WITH_REPLICA_STATE = 15
_RESPONSE_BYTES = 32
_PARTITION_BYTES = 48


@api(
    ApiKey.FETCH,
    4,
    18,
    needs=requires(
        on_topic(Operation.READ, "each topic, for consumers"),
        on_cluster(Operation.CLUSTER_ACTION, "for followers", "TOPIC_AUTHORIZATION_FAILED for each partition"),
    ),
)
def handle(
    request: FetchRequest,
    context: RequestContext,
    *,
    config: BrokerConfig,
    fetch_sessions: FetchSessionCache,
    image: MetadataImage,
    replicas: ReplicaManager,
) -> HandlerResult | InTurns[HandlerResult]:
    try:
        limits = _limits(config, request, context)
        fetch = _Fetch(image, fetch_sessions, request, context, limits)
        if context.is_long:
            return _fetch_in_turns(fetch, replicas, limits, context)
        fetch.open(list(_requested(image, request.topics, fetch.by_id)))
        if len(fetch.partitions) <= LONG_FETCH:
            fetch.check_rights(fetch.partitions)
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    if len(fetch.partitions) > LONG_FETCH:
        return _read_in_turns(fetch, replicas, limits, context)
    reads = read_partitions(replicas, fetch.partitions, limits)
    if reads.urgent or reads.size >= limits.min_bytes or limits.max_wait_ms <= 0 or not reads.partitions:
        return fetch.response(reads)
    operation = DelayedFetch(replicas, reads, limits, lambda reads: context.reply(fetch.response(reads)))
    return context.wait(operation, replicas.fetches, operation.keys())


def _fetch_in_turns(
    fetch: "_Fetch", replicas: ReplicaManager, limits: FetchLimits, context: RequestContext
) -> InTurns[HandlerResult]:
    try:
        yield from fetch.open_in_turns()
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    return (yield from _read_in_turns(fetch, replicas, limits, context))


def _read_in_turns(
    fetch: "_Fetch", replicas: ReplicaManager, limits: FetchLimits, context: RequestContext
) -> InTurns[HandlerResult]:
    for part in parts(fetch.partitions):
        fetch.check_rights(part)
        if context.turn_is_over():
            yield
    reads = yield from read_in_turns(replicas, fetch.partitions, limits, context.turn_is_over)
    if reads.urgent or reads.size >= limits.min_bytes or limits.max_wait_ms <= 0 or not reads.partitions:
        return (yield from fetch.response_in_turns(reads))

    def respond(reads: Reads | None) -> InTurns[HandlerResult]:
        if reads is None:
            reads = yield from read_in_turns(replicas, fetch.partitions, limits, context.turn_is_over, is_first=False)
        return (yield from fetch.response_in_turns(reads))

    operation = DelayedLongFetch(
        replicas,
        reads,
        limits,
        context.turn_is_over,
        context.check_in_turns,
        lambda reads: context.run_in_turns(respond(reads)),
    )
    return context.wait(operation, replicas.fetches, operation.keys())


def _limits(config: BrokerConfig, request: FetchRequest, context: RequestContext) -> FetchLimits:
    version = context.api_version
    replica_id, replica_epoch = request.replica_id, -1
    if version >= _FIRST_WITH_REPLICA_STATE:
        state = request.replica_state
        replica_id, replica_epoch = (state.replica_id, state.replica_epoch) if state is not None else (CONSUMER, -1)
    if request.isolation_level not in (0, 1):
        raise InvalidRequestError(f"The isolation level must be 0 or 1, but it is {request.isolation_level}")
    max_bytes = min(request.max_bytes, config.fetch_max_bytes)
    if replica_id >= 0:
        context.is_exempt = True
    elif context.has_quota:
        max_bytes = context.limit_fetch(max_bytes)
    return FetchLimits(
        min_bytes=min(request.min_bytes, max_bytes),
        max_bytes=max_bytes,
        max_wait_ms=request.max_wait_ms,
        isolation=fetch_isolation(replica_id, request.isolation_level),
        replica_id=replica_id if replica_id >= 0 else CONSUMER,
        replica_epoch=replica_epoch,
        client_rack=request.rack_id if replica_id < 0 and version >= _FIRST_WITH_RACKS else None,
        api_version=version,
    )


class _Fetch:
    """A fetch request and its fetch session, if any."""

    __slots__ = (
        "_context",
        "_image",
        "_incremental",
        "_is_denied",
        "_is_follower",
        "_limits",
        "_request",
        "_rights",
        "_session",
        "_sessions",
        "by_id",
        "partitions",
    )

    def __init__(
        self,
        image: MetadataImage,
        sessions: FetchSessionCache,
        request: FetchRequest,
        context: RequestContext,
        limits: FetchLimits,
    ):
        self._image = image
        self._sessions = sessions
        self._request = request
        self._context = context
        self._limits = limits
        self._session: FetchSession | None = None
        self._rights = TopicRights(context, Operation.READ)
        is_follower = limits.replica_id >= 0
        self._is_follower = is_follower and is_allowed_on_cluster(context, Operation.CLUSTER_ACTION)
        self._is_denied = is_follower and not self._is_follower
        """True for a client that fetches as a follower and may not (CVE-2018-1288)."""
        self._incremental = False
        self.by_id = context.api_version >= _FIRST_WITH_TOPIC_IDS
        self.partitions: list[FetchedPartition] = []

    def open(self, requested: list[FetchedPartition]) -> None:
        """Finds or creates the session and determines the partitions to read."""
        if len(requested) > 1:
            # If the request names a partition more than once, the last entry counts, as in Kafka.
            requested = list({fetched.key: fetched for fetched in requested}.values())
        self.partitions = requested
        session = self._find_session(len(requested))
        if session is not None:
            self._sessions.change(session, requested, _forgotten(self._request, self.by_id))
            self._session_changed(session)

    def open_in_turns(self) -> InTurns[None]:
        """Like `open`, for a request with very many partitions."""
        by_key: dict[tuple[str | Uuid, int], FetchedPartition] = {}
        for topic in self._request.topics:
            for part in parts(topic.partitions):
                topic_part = FetchTopic(topic=topic.topic, topic_id=topic.topic_id, partitions=list(part))
                for fetched in _requested(self._image, [topic_part], self.by_id):
                    by_key[fetched.key] = fetched
                if self._context.turn_is_over():
                    yield
        self.partitions = list(by_key.values())
        session = self._find_session(len(self.partitions))
        if session is not None:
            for requested in parts(self.partitions):
                self._sessions.change(session, requested, ())
                if self._context.turn_is_over():
                    yield
            for forgotten in parts(list(_forgotten(self._request, self.by_id))):
                self._sessions.change(session, (), forgotten)
                if self._context.turn_is_over():
                    yield
            self._session_changed(session)

    def _find_session(self, size: int) -> FetchSession | None:
        """Finds or creates the session, for `size` partitions in the request."""
        context, request, sessions = self._context, self._request, self._sessions
        if context.api_version < _FIRST_WITH_SESSIONS:
            return None
        session_id, epoch = request.session_id, request.session_epoch
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session_id != NO_SESSION:
                sessions.remove(session_id)
            if epoch == INITIAL_EPOCH:
                self._session = sessions.create(size, self._is_follower, self.by_id)
        else:
            self._session = sessions.use(session_id, epoch, self.by_id)
            self._incremental = True
        return self._session

    def _session_changed(self, session: FetchSession) -> None:
        """Takes the partitions from the session if this is an incremental fetch."""
        if not self._incremental:
            return
        self.partitions = list(session.partitions.values())
        if not self.partitions:
            # As in Kafka: the client creates another session when it fetches again.
            self._sessions.remove(session.id)
            self._session, self._incremental = None, False
        elif self.by_id:
            for fetched in self.partitions:
                fetched.topic = self._image.topic_name(fetched.topic_id)

    def check_rights(self, fetched: Iterable[FetchedPartition]) -> None:
        """Notes which partitions the client may not read. A right may be revoked while there is a session."""
        if self._context.authorizer is None:
            return
        for each in fetched:
            if self._is_denied or self._is_follower:
                each.is_denied = self._is_denied
            else:
                each.is_denied = each.topic is not None and not self._rights.allows(each.topic)

    def _hints(self) -> LeaderHints[LeaderIdAndEpoch, NodeEndpoint]:
        return LeaderHints(self._image, self._context.connection.listener_name, LeaderIdAndEpoch, NodeEndpoint)

    def _throttled(self, reads: Sequence[PartitionRead]) -> FetchResponse | None:
        """Returns the empty response for a consumer that has exceeded a quota. The session does not change, so the
        next response has what is missing in this one."""
        if not self._context.has_quota or not self._context.throttle_fetch(_estimated_size(reads)):
            return None
        if self._session is not None and not self._incremental:
            # The client cannot know from an empty response which partitions are in the session.
            self._sessions.remove(self._session.id)
            self._session = None
        return FetchResponse(session_id=self._session.id if self._session is not None else NO_SESSION, responses=[])

    def response(self, reads: Reads) -> FetchResponse:
        throttled = self._throttled(reads.partitions)
        if throttled is not None:
            return throttled
        hints = self._hints()
        topics: list[FetchableTopicResponse] = []
        self._add(topics, reads.partitions, hints)
        return self._complete(topics, (read.fetched for read in reads.partitions if read.size), hints)

    def response_in_turns(self, reads: Reads) -> InTurns[FetchResponse]:
        """Like `response`, but gives way in between. It frees the reads: all at once would take long."""
        throttled = self._throttled(reads.partitions)
        if throttled is not None:
            return throttled
        hints = self._hints()
        topics: list[FetchableTopicResponse] = []
        served: list[FetchedPartition] = []
        self.partitions = []
        for part in consumed_parts(reads.partitions):
            self._add(topics, part, hints)
            served += [read.fetched for read in part if read.size]
            if self._context.turn_is_over():
                yield
        return self._complete(topics, served, hints)

    def _add(
        self,
        topics: list[FetchableTopicResponse],
        reads: Sequence[PartitionRead],
        hints: LeaderHints[LeaderIdAndEpoch, NodeEndpoint],
    ) -> None:
        """Adds partitions to a response."""
        is_follower = self._limits.replica_id >= 0
        for read in reads:
            _count(read, is_follower)
            if self._session is not None and not self._record(read):
                continue
            fetched = read.fetched
            topic, topic_id = fetched.topic or "", fetched.topic_id
            if not topics or (topics[-1].topic, topics[-1].topic_id) != (topic, topic_id):
                topics.append(FetchableTopicResponse(topic=topic, topic_id=topic_id, partitions=[]))
            topics[-1].partitions.append(_partition_data(read, hints))

    def _complete(
        self,
        topics: list[FetchableTopicResponse],
        served: Iterable[FetchedPartition],
        hints: LeaderHints[LeaderIdAndEpoch, NodeEndpoint],
    ) -> FetchResponse:
        if self._session is not None:
            self._session.rotate(served)
        session_id = self._session.id if self._session is not None else NO_SESSION
        return FetchResponse(session_id=session_id, responses=topics, node_endpoints=hints.endpoints)

    def _record(self, read: PartitionRead) -> bool:
        """Records the offsets sent to the session's client. Returns False if the response can omit the partition."""
        fetched, result = read.fetched, read.result
        if read.error is not None or result is None:
            fetched.sent_high_watermark = -1  # so the next response includes it again
            return True
        changed = (
            not self._incremental
            or result.slice is not None
            or read.diverging_epoch is not None
            or read.preferred_replica is not None
            or result.high_watermark != fetched.sent_high_watermark
            or result.log_start_offset != fetched.sent_log_start
        )
        fetched.sent_high_watermark = result.high_watermark
        fetched.sent_log_start = result.log_start_offset
        return changed


def _estimated_size(reads: Iterable[PartitionRead]) -> int:
    """Returns the size of the response, with an estimate of everything except the records."""
    return _RESPONSE_BYTES + sum(read.size + _PARTITION_BYTES for read in reads if read.size)


def _requested(image: MetadataImage, topics: list[FetchTopic], by_id: bool) -> Iterator[FetchedPartition]:
    for topic in topics:
        name = image.topic_name(topic.topic_id) if by_id else topic.topic
        for partition in topic.partitions:
            yield FetchedPartition(
                name,
                topic.topic_id,
                partition.partition,
                partition.fetch_offset,
                partition.partition_max_bytes,
                partition.current_leader_epoch,
                partition.last_fetched_epoch,
                partition.log_start_offset,
            )


def _forgotten(request: FetchRequest, by_id: bool) -> Iterator[tuple[str | Uuid, int]]:
    for topic in request.forgotten_topics_data:
        for index in topic.partitions:
            yield (topic.topic_id if by_id else topic.topic), index


def _count(read: PartitionRead, is_follower: bool) -> None:
    """Counts what is sent for a partition, for the metrics."""
    if read.partition is None:
        return
    traffic = read.partition.traffic
    if is_follower:
        traffic.replication_bytes_out += read.size
        return
    traffic.fetches += 1
    traffic.bytes_out += read.size
    if read.error is not None:
        traffic.failed_fetches += 1


def _partition_data(read: PartitionRead, hints: LeaderHints[LeaderIdAndEpoch, NodeEndpoint]) -> PartitionData:
    fetched, result = read.fetched, read.result
    if read.error is not None or result is None:
        error = read.error or KafkaError()
        return PartitionData(
            partition_index=fetched.partition,
            error_code=error.code,
            high_watermark=-1,
            records=b"",
            current_leader=hints.leader_after(error, fetched.topic, fetched.partition),
        )
    data = PartitionData(
        partition_index=fetched.partition,
        high_watermark=result.high_watermark,
        last_stable_offset=result.last_stable_offset,
        log_start_offset=result.log_start_offset,
        records=result.slice if result.slice is not None else b"",
        aborted_transactions=None,
    )
    if read.preferred_replica is not None:
        data.preferred_read_replica = read.preferred_replica
    if result.aborted is not None:
        data.aborted_transactions = [
            AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
            for aborted in result.aborted
        ]
    if read.diverging_epoch is not None:
        epoch, end_offset = read.diverging_epoch
        data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return data
