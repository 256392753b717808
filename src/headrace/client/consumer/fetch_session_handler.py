"""The client's side of incremental fetch sessions (KIP-227): a partition is sent once, and again only when it changes.

    first request            session 0, epoch 0       all partitions             the response contains the session id
    next requests            session n, epoch 1, 2..  changed and forgotten      the response has partitions with news
    after any failure        session n, epoch 0       all partitions             the broker creates a new session
    sessions disabled        session 0, epoch -1      all partitions

There is one handler per broker, since a session belongs to a broker. Owner: the loop. Does no I/O: `build_request`
returns the request to send, `handle_response` and `handle_error` take its result. A session has at most one request in
flight, or else the broker would refuse the epochs.
"""

from typing import NamedTuple

from headrace.common.errors import FetchSessionIdNotFoundError
from headrace.common.ids import Uuid
from headrace.common.types import TopicPartition
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_LAST_EPOCH = 2**31 - 1


class RequestedPartition(NamedTuple):
    """One partition of a fetch request."""

    topic_id: Uuid
    fetch_offset: int
    max_bytes: int
    leader_epoch: int


class FetchSessionHandler:
    """The fetch session with one broker."""

    def __init__(self, enabled: bool = True):
        self._enabled = enabled
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._session_partitions: dict[TopicPartition, RequestedPartition] = {}
        self._by_id = False

    @property
    def is_incremental(self) -> bool:
        """True if the next request contains only changes."""
        return self._enabled and self._epoch != INITIAL_EPOCH

    def build_request(self, partitions: dict[TopicPartition, RequestedPartition], by_id: bool) -> FetchRequest:
        """Returns the request that makes the session consist of exactly these partitions. The caller sets the limits.
        With `by_id` it names topics by id (Fetch v13)."""
        if by_id != self._by_id:
            # A session uses either topic names or topic ids.
            self.handle_error()
            self._by_id = by_id
        if not self._enabled:
            self._session_partitions = partitions
            return self._request(NO_SESSION, FINAL_EPOCH, partitions, ())
        if not self.is_incremental:
            self._session_partitions = partitions
            return self._request(self._id, INITIAL_EPOCH, partitions, ())
        session_partitions = self._session_partitions
        changed = {tp: requested for tp, requested in partitions.items() if session_partitions.get(tp) != requested}
        forgotten = [
            (tp, previous.topic_id)
            for tp, previous in session_partitions.items()
            if tp not in partitions or (by_id and partitions[tp].topic_id != previous.topic_id)
        ]
        self._session_partitions = partitions
        return self._request(self._id, self._epoch, changed, forgotten)

    def _request(
        self,
        session_id: int,
        epoch: int,
        changed: dict[TopicPartition, RequestedPartition],
        forgotten: "list[tuple[TopicPartition, Uuid]] | tuple[()]",
    ) -> FetchRequest:
        topics: dict[tuple[str, Uuid], list[FetchPartition]] = {}
        for tp, requested in changed.items():
            topics.setdefault((tp.topic, requested.topic_id), []).append(
                FetchPartition(
                    partition=tp.partition,
                    current_leader_epoch=requested.leader_epoch,
                    fetch_offset=requested.fetch_offset,
                    partition_max_bytes=requested.max_bytes,
                )
            )
        forgotten_topics: dict[tuple[str, Uuid], list[int]] = {}
        for tp, topic_id in forgotten:
            forgotten_topics.setdefault((tp.topic, topic_id), []).append(tp.partition)
        return FetchRequest(
            session_id=session_id,
            session_epoch=epoch,
            topics=[
                FetchTopic(topic=name, topic_id=topic_id, partitions=topic_partitions)
                for (name, topic_id), topic_partitions in topics.items()
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic=name, topic_id=topic_id, partitions=topic_partitions)
                for (name, topic_id), topic_partitions in forgotten_topics.items()
            ],
        )

    def handle_response(self, session_id: int, error_code: int) -> None:
        """Updates the session from the session id and the top-level error code of a response."""
        if not self._enabled:
            return
        if error_code == FetchSessionIdNotFoundError.code:
            self._id = NO_SESSION
            self.handle_error()
        elif error_code:
            self.handle_error()
        elif not self.is_incremental:
            # Session id 0: the broker has no room for a session. Send full requests until it has.
            self._id = session_id
            self._epoch = 1 if session_id != NO_SESSION else INITIAL_EPOCH
        elif session_id != self._id:
            # The broker has evicted the session.
            self._id = NO_SESSION
            self.handle_error()
        else:
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1

    def handle_error(self) -> None:
        """Starts a new session with the next request: the broker may or may not have handled the last one."""
        self._epoch = INITIAL_EPOCH
        self._session_partitions = {}
