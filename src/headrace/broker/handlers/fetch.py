"""Fetch: reads record batches from partitions.

Versions 4 (KIP-98, isolation level) to 18: 5 log start offset (KIP-107), 7 incremental fetch sessions (KIP-227), 9
leader epochs (KIP-320), 10 zstd (KIP-110), 11 racks (KIP-392), 12 flexible and diverging epochs (KIP-595), 13 topic ids
(KIP-516), 15 replica state (KIP-903), 16 the new leader in errors (KIP-951), 17 directory ids (KIP-853), 18 the
reader's high watermark (KIP-1166).

A consumer reads up to the high watermark, or with read_committed up to the last stable offset; a follower reads all. If
there are fewer than `min_bytes` the reply waits, at most `max_wait_ms`. Followers other than the leader do not serve
consumers yet: `preferred_read_replica` is never set.
"""

from collections.abc import Iterator

from headrace.broker.config.broker import BrokerConfig
from headrace.broker.dispatch import HandlerResult, RequestContext, api
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
from headrace.broker.replica_manager import ReplicaManager
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
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

_FIRST_WITH_SESSIONS = 7
_FIRST_WITH_TOPIC_IDS = 13
_FIRST_WITH_REPLICA_STATE = 15


@api(ApiKey.FETCH, 4, 18)
def handle(
    request: FetchRequest,
    context: RequestContext,
    *,
    config: BrokerConfig,
    fetch_sessions: FetchSessionCache,
    image: MetadataImage,
    replicas: ReplicaManager,
) -> HandlerResult:
    try:
        limits = _limits(config, request, context.api_version)
        fetch = _Fetch(image, fetch_sessions, request, context, limits)
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    reads = read_partitions(replicas, fetch.partitions, limits)
    if reads.urgent or reads.size >= limits.min_bytes or limits.max_wait_ms <= 0 or not reads.partitions:
        return fetch.response(reads)
    operation = DelayedFetch(replicas, reads, limits, lambda reads: context.reply(fetch.response(reads)))
    return context.wait(operation, replicas.fetches, operation.keys())


def _limits(config: BrokerConfig, request: FetchRequest, version: int) -> FetchLimits:
    replica_id = request.replica_id
    if version >= _FIRST_WITH_REPLICA_STATE:
        replica_id = request.replica_state.replica_id if request.replica_state is not None else CONSUMER
    if request.isolation_level not in (0, 1):
        raise InvalidRequestError(f"isolation level is 0 or 1, not {request.isolation_level}")
    return FetchLimits(
        min_bytes=min(request.min_bytes, request.max_bytes, config.fetch_max_bytes),
        max_bytes=min(request.max_bytes, config.fetch_max_bytes),
        max_wait_ms=request.max_wait_ms,
        isolation=fetch_isolation(replica_id, request.isolation_level),
        replica_id=replica_id if replica_id >= 0 else CONSUMER,
        api_version=version,
    )


class _Fetch:
    """One fetch request with its session, if it has one."""

    __slots__ = ("_image", "_incremental", "_listener_name", "_session", "partitions")

    def __init__(
        self,
        image: MetadataImage,
        sessions: FetchSessionCache,
        request: FetchRequest,
        context: RequestContext,
        limits: FetchLimits,
    ):
        self._image = image
        self._listener_name = context.connection.listener_name
        self._session: FetchSession | None = None
        self._incremental = False
        by_id = context.api_version >= _FIRST_WITH_TOPIC_IDS
        asked = list(_asked_for(image, request, by_id))
        if len(asked) > 1:
            # Of a partition that comes more than once the last counts, as in Kafka.
            asked = list({one.key: one for one in asked}.values())
        self.partitions: list[FetchedPartition] = asked
        if context.api_version < _FIRST_WITH_SESSIONS:
            return
        session_id, epoch = request.session_id, request.session_epoch
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session_id != NO_SESSION:
                sessions.remove(session_id)
            if epoch == INITIAL_EPOCH:
                self._session = sessions.create(asked, limits.replica_id >= 0, by_id)
            return
        session = sessions.use(session_id, epoch, by_id)
        session.change(asked, _forgotten(request, by_id))
        self.partitions = list(session.partitions.values())
        if not self.partitions:
            sessions.remove(session_id)  # as in Kafka: the client begins another when it has something to fetch
            return
        self._session = session
        self._incremental = True
        if by_id:
            for fetched in self.partitions:
                fetched.topic = image.topic_name(fetched.topic_id)

    def response(self, reads: Reads) -> FetchResponse:
        hints = LeaderHints(self._image, self._listener_name, LeaderIdAndEpoch, NodeEndpoint)
        topics: list[FetchableTopicResponse] = []
        last: tuple[str | None, Uuid] | None = None
        for read in reads.partitions:
            if self._session is not None and not self._note(read):
                continue
            fetched = read.fetched
            if last != (fetched.topic, fetched.topic_id):
                last = (fetched.topic, fetched.topic_id)
                topics.append(
                    FetchableTopicResponse(topic=fetched.topic or "", topic_id=fetched.topic_id, partitions=[])
                )
            topics[-1].partitions.append(_partition_data(read, hints))
        if self._session is not None:
            self._session.rotate(read.fetched for read in reads.partitions if read.size)
        session_id = self._session.id if self._session is not None else NO_SESSION
        return FetchResponse(session_id=session_id, responses=topics, node_endpoints=hints.endpoints)

    def _note(self, read: PartitionRead) -> bool:
        """Remembers what the session is told of a partition. Returns whether it is to be told at all."""
        fetched, result = read.fetched, read.result
        if read.error is not None or result is None:
            fetched.sent_high_watermark = -1  # so that the next reply mentions it again
            return True
        news = (
            not self._incremental
            or result.slice is not None
            or read.diverging_epoch is not None
            or result.high_watermark != fetched.sent_high_watermark
            or result.log_start_offset != fetched.sent_log_start
        )
        fetched.sent_high_watermark = result.high_watermark
        fetched.sent_log_start = result.log_start_offset
        return news


def _asked_for(image: MetadataImage, request: FetchRequest, by_id: bool) -> Iterator[FetchedPartition]:
    for topic in request.topics:
        name = image.topic_name(topic.topic_id) if by_id else topic.topic
        for one in topic.partitions:
            yield FetchedPartition(
                name,
                topic.topic_id,
                one.partition,
                one.fetch_offset,
                one.partition_max_bytes,
                one.current_leader_epoch,
                one.last_fetched_epoch,
            )


def _forgotten(request: FetchRequest, by_id: bool) -> Iterator[tuple[str | Uuid, int]]:
    for topic in request.forgotten_topics_data:
        for index in topic.partitions:
            yield (topic.topic_id if by_id else topic.topic), index


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
    if result.aborted is not None:
        data.aborted_transactions = [
            AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset) for one in result.aborted
        ]
    if read.diverging_epoch is not None:
        epoch, end_offset = read.diverging_epoch
        data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return data
