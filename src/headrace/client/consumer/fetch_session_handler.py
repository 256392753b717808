"""Fetch sessions, the client's half (KIP-227): a partition is named once, and again only when something changed.

    first request            session 0, epoch 0       all partitions             the reply gives the session's id
    requests after it        session n, epoch 1, 2..  changed and forgotten      only partitions with news are in it
    after any failure        session n, epoch 0       all partitions             the broker makes a new one
    no sessions wanted       session 0, epoch -1      all partitions

One for each broker, since a session belongs to one. Owned by the loop. Does no I/O: `plan` says what to send, and
`answered` and `failed` take how that went. At most one request of a session is in flight, or the broker would refuse
the epochs.
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
    """What is asked of one partition."""

    topic_id: Uuid
    fetch_offset: int
    max_bytes: int
    leader_epoch: int


class FetchSessionHandler:
    """See the module."""

    def __init__(self, enabled: bool = True):
        self._enabled = enabled
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._known: dict[TopicPartition, RequestedPartition] = {}
        self._by_id = False

    @property
    def is_incremental(self) -> bool:
        """The next request names only what changed."""
        return self._enabled and self._epoch != INITIAL_EPOCH

    def plan(self, wanted: dict[TopicPartition, RequestedPartition], by_id: bool) -> FetchRequest:
        """The request for these partitions and no others; limits are for the caller to set. With `by_id` topics go by
        their ids (Fetch v13)."""
        if by_id != self._by_id:
            # A session has either names or ids.
            self.failed()
            self._by_id = by_id
        if not self._enabled:
            self._known = wanted
            return self._request(NO_SESSION, FINAL_EPOCH, wanted, ())
        if not self.is_incremental:
            self._known = wanted
            return self._request(self._id, INITIAL_EPOCH, wanted, ())
        known = self._known
        changed = {tp: want for tp, want in wanted.items() if known.get(tp) != want}
        forgotten = [
            (tp, was.topic_id)
            for tp, was in known.items()
            if tp not in wanted or (by_id and wanted[tp].topic_id != was.topic_id)
        ]
        self._known = wanted
        return self._request(self._id, self._epoch, changed, forgotten)

    def _request(
        self,
        session_id: int,
        epoch: int,
        changed: dict[TopicPartition, RequestedPartition],
        forgotten: "list[tuple[TopicPartition, Uuid]] | tuple[()]",
    ) -> FetchRequest:
        topics: dict[tuple[str, Uuid], list[FetchPartition]] = {}
        for tp, want in changed.items():
            topics.setdefault((tp.topic, want.topic_id), []).append(
                FetchPartition(
                    partition=tp.partition,
                    current_leader_epoch=want.leader_epoch,
                    fetch_offset=want.fetch_offset,
                    partition_max_bytes=want.max_bytes,
                )
            )
        gone: dict[tuple[str, Uuid], list[int]] = {}
        for tp, topic_id in forgotten:
            gone.setdefault((tp.topic, topic_id), []).append(tp.partition)
        return FetchRequest(
            session_id=session_id,
            session_epoch=epoch,
            topics=[
                FetchTopic(topic=name, topic_id=topic_id, partitions=parts)
                for (name, topic_id), parts in topics.items()
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic=name, topic_id=topic_id, partitions=parts)
                for (name, topic_id), parts in gone.items()
            ],
        )

    def answered(self, session_id: int, error_code: int) -> None:
        """A reply came: which session it names, and its error for the whole request."""
        if not self._enabled:
            return
        if error_code == FetchSessionIdNotFoundError.code:
            self._id = NO_SESSION
            self.failed()
        elif error_code:
            self.failed()
        elif not self.is_incremental:
            # 0: the broker has no room for a session now. Each request is a full one until it has.
            self._id = session_id
            self._epoch = 1 if session_id != NO_SESSION else INITIAL_EPOCH
        elif session_id != self._id:
            # It has thrown the session away, or this is not a reply to what was asked.
            self._id = NO_SESSION
            self.failed()
        else:
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1

    def failed(self) -> None:
        """No reply: the broker may or may not have taken the request. A new session takes the place of this one."""
        self._epoch = INITIAL_EPOCH
        self._known = {}
