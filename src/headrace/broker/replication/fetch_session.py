"""The follower's side of incremental fetch sessions (KIP-227): a partition is sent once, and again when it changes.

    first request        session 0, epoch 0       all partitions              the response contains the session id
    next requests        session n, epoch 1, 2..  changed and forgotten ones  the response has partitions with news
    after any failure    session n, epoch 0       all partitions              the leader creates a new session

One session belongs to one fetcher. Does no I/O: `build` returns the next request, `responded` and `failed` take its
result. At most one request is in flight.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.common.errors import FetchSessionIdNotFoundError
from headrace.common.ids import Uuid
from headrace.common.types import TopicPartition
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

_NO_SESSION = 0
_INITIAL_EPOCH = 0
_LAST_EPOCH = 2**31 - 1


class RequestedPartition(NamedTuple):
    """One partition of a follower's fetch."""

    topic_id: Uuid
    fetch_offset: int
    log_start_offset: int
    leader_epoch: int
    last_fetched_epoch: int
    max_bytes: int


class ReplicaFetchSession:
    """The fetch session of one fetcher with its leader."""

    def __init__(self) -> None:
        self._id = _NO_SESSION
        self._epoch = _INITIAL_EPOCH
        self.by_id = False
        """True if the session names topics by id."""
        self.partitions: dict[TopicPartition, RequestedPartition] = {}
        """The partitions that the leader knows, as they were last sent."""

    @property
    def is_full(self) -> bool:
        """True if the next request must name all partitions."""
        return self._epoch == _INITIAL_EPOCH

    def build(
        self, requested: Mapping[TopicPartition, RequestedPartition], forgotten: Iterable[TopicPartition], by_id: bool
    ) -> FetchRequest:
        """Returns the next request, without its limits.

        `requested` has all partitions to fetch if `is_full`, otherwise at least those that have changed. `forgotten`
        are no longer fetched. With `by_id`, the request names topics by id (Fetch version 13).
        """
        if self.is_full:
            self.partitions = dict(requested)
            self.by_id = by_id
            return self._request(requested, ())
        if by_id != self.by_id:
            raise ValueError("A fetch session must not change between topic names and topic ids")
        changed: dict[TopicPartition, RequestedPartition] = {}
        gone: list[tuple[TopicPartition, Uuid]] = []
        for tp in forgotten:
            previous = self.partitions.pop(tp, None)
            if previous is not None:
                gone.append((tp, previous.topic_id))
        for tp, partition in requested.items():
            previous = self.partitions.get(tp)
            if previous == partition:
                continue
            if by_id and previous is not None and previous.topic_id != partition.topic_id:
                # In a session by name it would be the same partition, and the leader removes after it has added.
                gone.append((tp, previous.topic_id))
            self.partitions[tp] = changed[tp] = partition
        return self._request(changed, gone)

    def _request(
        self, changed: Mapping[TopicPartition, RequestedPartition], forgotten: Iterable[tuple[TopicPartition, Uuid]]
    ) -> FetchRequest:
        topics: dict[tuple[str, Uuid], list[FetchPartition]] = {}
        for tp, partition in changed.items():
            topics.setdefault((tp.topic, partition.topic_id), []).append(
                FetchPartition(
                    partition=tp.partition,
                    current_leader_epoch=partition.leader_epoch,
                    fetch_offset=partition.fetch_offset,
                    last_fetched_epoch=partition.last_fetched_epoch,
                    log_start_offset=partition.log_start_offset,
                    partition_max_bytes=partition.max_bytes,
                )
            )
        gone: dict[tuple[str, Uuid], list[int]] = {}
        for tp, topic_id in forgotten:
            gone.setdefault((tp.topic, topic_id), []).append(tp.partition)
        return FetchRequest(
            session_id=self._id,
            session_epoch=self._epoch,
            topics=[FetchTopic(topic=name, topic_id=id_, partitions=parts) for (name, id_), parts in topics.items()],
            forgotten_topics_data=[
                ForgottenTopic(topic=name, topic_id=id_, partitions=parts) for (name, id_), parts in gone.items()
            ],
        )

    def responded(self, session_id: int, error_code: int) -> None:
        """Takes the session id and the error code of a response."""
        if error_code:
            if error_code == FetchSessionIdNotFoundError.code:
                self._id = _NO_SESSION
            self.failed()
        elif self.is_full:
            # Session id 0: the leader has no room for a session. All requests are full then.
            self._id = session_id
            self._epoch = 1 if session_id != _NO_SESSION else _INITIAL_EPOCH
        elif session_id != self._id:
            self._id = _NO_SESSION
            self.failed()
        else:
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1

    def failed(self) -> None:
        """Starts a new session with the next request: the leader may or may not have handled the last one."""
        self._epoch = _INITIAL_EPOCH
        self.partitions = {}
