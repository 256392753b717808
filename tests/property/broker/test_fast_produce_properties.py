"""The compiled Produce path against the general one: random requests, equal responses and equal logs."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.broker.producing import ProducePath, produce_frame, state_of
from tests.support.broker.replicas import FOLLOWER, NODE, TP, TP_1
from tests.support.storage.logs import START_MS

from headrace.common.ids import Uuid
from headrace.records import Compression, RecordBatch, encode_rows

Action = Callable[[ProducePath], None]

ORDINARY_TOPICS: list[dict[str, object]] = [
    {},
    {"segment_bytes": 1500, "index_interval_bytes": 0},
    {"index_interval_bytes": 100, "segment_index_bytes": 64},
    {"max_message_bytes": 400, "compression_type": "uncompressed"},
    {"segment_ms": 500, "segment_jitter_ms": 0},
    {"message_timestamp_after_max_ms": 300},
    {"flush_messages": 5},
]
OTHER_TOPICS: list[dict[str, object]] = [
    {"cleanup_policy": "compact"},
    {"message_timestamp_type": "LogAppendTime"},
    {"message_timestamp_before_max_ms": 300},
    {"compression_type": "gzip"},
]
# Hypothesis prefers the first of several values, so the ordinary ones come first.
TOPICS = st.sampled_from([*ORDINARY_TOPICS, *ORDINARY_TOPICS, *OTHER_TOPICS])
ROWS = st.lists(
    st.tuples(
        st.sampled_from([None, b"", b"key"]),
        st.sampled_from([None, b"value", b"x" * 150]),
        st.sampled_from([START_MS, START_MS + 1, START_MS + 400, START_MS - 400, -1]),
        st.sampled_from([(), (("header", b"1"),)]),
    ),
    min_size=1,
    max_size=4,
)


FIRST_ROW = (b"key", b"first", START_MS, ())
ODD_BATCHES = ("gzip", "transactional", "log append time", "offset", "timestamp", "changed byte", "cut", "null")
ODD_REQUESTS: dict[str, Any] = {
    "acks": 2,
    "topic": "__consumer_offsets",
    "topic_id": Uuid(int=9),
    "transactional_id": "t",
    "client_id": "ключ",
}
ONE_IN_FOUR = st.sampled_from([False, False, False, True])


@st.composite
def batches(draw: st.DrawFn) -> bytearray | None:
    """Returns a batch, mostly an ordinary one."""
    odd = draw(st.sampled_from(ODD_BATCHES)) if draw(ONE_IN_FOUR) else ""
    fields: dict[str, Any] = {}
    if draw(ONE_IN_FOUR) or odd == "transactional":
        fields = {"producer_id": 7, "producer_epoch": draw(st.sampled_from([0, 0, 0, 1]))}
        fields["base_sequence"] = draw(st.integers(0, 3))
    if odd == "gzip":
        fields["codec"] = Compression.GZIP
    elif odd == "transactional":
        fields["transactional"] = True
    elif odd == "log append time":
        fields["log_append_time"] = True
    elif odd == "offset":
        fields["base_offset"] = 3
    batch = encode_rows(draw(ROWS), **fields)
    if odd == "timestamp":
        RecordBatch(batch).patch_max_timestamp(START_MS + 200, False)
    elif odd == "changed byte":
        batch[draw(st.integers(0, len(batch) - 1))] ^= draw(st.integers(1, 255))
    elif odd == "cut":
        del batch[draw(st.integers(0, len(batch))) :]
    return None if odd == "null" else batch


@st.composite
def requests(draw: st.DrawFn) -> Action:
    entries = draw(st.lists(st.tuples(st.sampled_from([0, 1, 0, 1, 0, 1, 2]), batches()), min_size=1, max_size=3))
    odd = draw(st.sampled_from([*ODD_REQUESTS, "changed byte", "cut"])) if draw(ONE_IN_FOUR) else ""
    fields: dict[str, Any] = {"acks": draw(st.sampled_from([1, -1, 0])), "version": draw(st.integers(3, 13))}
    fields["client_id"] = draw(st.sampled_from([None, "", "client"]))
    if odd in ODD_REQUESTS:
        fields[odd] = ODD_REQUESTS[odd]
    frame = bytearray(produce_frame(entries, **fields))
    if odd == "changed byte":
        frame[draw(st.integers(2, len(frame) - 1))] ^= draw(st.integers(1, 255))
    elif odd == "cut":
        del frame[draw(st.integers(1, len(frame))) :]
    return lambda path: path.receive(bytes(frame))


def _take_offline(path: ProducePath) -> None:
    path.replicas.find(*TP_1).go_offline()


EVENTS: list[Action] = [
    lambda path: path.replicas.pass_time(300),
    lambda path: path.replicas.pass_time(10_000),
    lambda path: path.lead(TP, leader_epoch=path.replicas.find(*TP).leader_epoch + 1) and None,
    lambda path: path.lead(TP, isr=(NODE, FOLLOWER)) and None,
    lambda path: path.lead(TP, leader=FOLLOWER, isr=(NODE, FOLLOWER)) and None,
    lambda path: path.lead(TP) and None,
    lambda path: path.replicas.find(*TP).delete_records(-1) and None,
    _take_offline,
]


@settings(max_examples=150)
@given(TOPICS, st.lists(st.one_of(requests(), requests(), requests(), st.sampled_from(EVENTS)), max_size=12))
def test_both_paths_do_the_same(topic: dict[str, object], actions: list[Action]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        fast_dir, general_dir = Path(directory, "fast"), Path(directory, "general")
        with (
            ProducePath(fast_dir, **topic) as fast,
            ProducePath(general_dir, is_fast=False, **topic) as general,
        ):
            for path in (fast, general):
                path.produce((0, encode_rows([FIRST_ROW])), (1, encode_rows([FIRST_ROW])))
            for action in actions:
                outcomes = [_outcome(action, path) for path in (fast, general)]
                assert outcomes[0] == outcomes[1]
                assert fast.connection.sent == general.connection.sent
                assert fast.connection.closed == general.connection.closed
                fast.connection.closed = general.connection.closed = False
            assert state_of(fast) == state_of(general)


def _outcome(action: Action, path: ProducePath) -> str:
    """Applies an action. Returns the error of an event that is not possible now."""
    try:
        action(path)
    except Exception as error:  # noqa: BLE001 - compared
        return repr(error)
    return ""
