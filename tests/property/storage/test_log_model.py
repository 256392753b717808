"""The log compared with a plain list of batches: any operations in any order.

Runs 150 fixed examples of 40 steps. `HEADRACE_MODEL_EXAMPLES` sets another number, of random ones.
"""

import copy
import dataclasses
import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.property.storage.log_model import Fate, ModelBatch, ModelLog, ModelProducer, SeenBatch, Sent, look
from tests.property.storage.watched_disk import StepRunner, WatchedDisk

from headrace.common.background import Scheduler
from headrace.common.errors import CorruptRecordError, OffsetOutOfRangeError
from headrace.common.ids import make_random
from headrace.common.types import TopicPartition
from headrace.records import Compression, ControlType, Record, RecordBatch, encode_marker, encode_rows, split_batches
from headrace.storage.cleaner import CleanerConfig, CleaningJob, finish_cleaning, plan_cleaning
from headrace.storage.config import LOG_KEYS, LogConfig
from headrace.storage.loader import LoadReport, open_log
from headrace.storage.log import FetchIsolation, Log, LogContext
from headrace.storage.producer_state import AppendOrigin
from headrace.storage.retention import delete_old_segments
from headrace.storage.segment import LogSegment
from headrace.storage.txn_index import AbortedTransaction
from headrace.testing.clock import ManualClock

TP = TopicPartition("model", 0)
PRODUCERS = st.integers(1, 3)
PRODUCER_EXPIRATION_MS = 20_000
KEYS = (b"a", b"b", b"c", b"dd")

Row = tuple[bytes | None, bytes | None, int | None, list[tuple[str, bytes | None]]]
"""Key, value, distance of the timestamp from the clock (None for no timestamp), headers."""


def rows_with(keys: st.SearchStrategy[Any], most: int = 4) -> st.SearchStrategy[list[Row]]:
    values = st.one_of(st.none(), st.binary(max_size=6), st.just(b"v" * 60))
    distances = st.sampled_from([0, 0, 0, -1, 40, -700, 900, -6_000, None])
    headers = st.sampled_from([[], [], [], [("h", b"1")], [("h", None), ("", b"")]])
    return st.lists(st.tuples(keys, values, distances, headers), min_size=1, max_size=most)


ROWS = rows_with(st.sampled_from(KEYS))
CODECS = st.sampled_from([Compression.NONE, Compression.NONE, *Compression])
CONFIGS = st.fixed_dictionaries(
    {
        "cleanup.policy": st.sampled_from(["delete", "compact", "compact", "compact,delete"]),
        "segment.bytes": st.sampled_from([1200, 2000, 10_000]),
        "index.interval.bytes": st.sampled_from([0, 100, 300, 4096]),
        "segment.index.bytes": st.sampled_from([24, 36, 100, 10_000]),
        "segment.ms": st.sampled_from([700, 5_000, 10**9]),
        "segment.jitter.ms": st.sampled_from([0, 0, 300]),
        "message.timestamp.type": st.sampled_from(["CreateTime", "CreateTime", "CreateTime", "LogAppendTime"]),
        "compression.type": st.sampled_from(["producer", "producer", "uncompressed", "lz4"]),
        "retention.ms": st.sampled_from([-1, 3_000, 60_000]),
        "retention.bytes": st.sampled_from([-1, 0, 1_500, 4_000]),
        "delete.retention.ms": st.sampled_from([0, 2_000]),
        "min.compaction.lag.ms": st.sampled_from([0, 0, 0, 1_000]),
        "flush.messages": st.sampled_from([2**63 - 1, 2**63 - 1, 1, 5]),
        "file.delete.delay.ms": st.sampled_from([0, 1_000]),
        "preallocate": st.sampled_from([False, False, True]),
    }
)


class LogMachine(RuleBasedStateMachine):
    root: Path
    _runs = itertools.count()

    def __init__(self) -> None:
        super().__init__()
        self.directory = self.root / f"run-{next(self._runs)}"
        self.clock = ManualClock()
        self.disk = WatchedDisk()
        self.model = ModelLog()
        self.leader_epoch = 0
        self.saved_recovery_point: int | None = None
        self.saved_start = 0
        self.job: CleaningJob | None = None
        self.log: Log

    @initialize(properties=CONFIGS, inline=st.booleans(), seed=st.integers(0, 3))
    def begin(self, properties: dict[str, Any], inline: bool, seed: int) -> None:
        self.config = LogConfig.from_properties(properties)
        self.runner = StepRunner(inline)
        self.context = LogContext(
            files=self.disk,
            clock=self.clock,
            runner=self.runner,
            scheduler=Scheduler(self.clock),
            random=make_random(seed),
        )
        self._open()

    def teardown(self) -> None:
        if self.directory.exists():
            self.log.abandon()
            shutil.rmtree(self.directory)

    def _open(self, **checkpoints: Any) -> LoadReport:
        """Opens the log like the manager does."""
        self.log, report = open_log(self.directory / str(TP), TP, self.config, self.context, **checkpoints)
        self.log.cleaned_up_to = min(self.model.cleaned_up_to, self.log.log_end_offset)
        self.log.on_recovery_point_lowered = self._checkpoint
        return report

    def _checkpoint(self) -> None:
        self.saved_recovery_point = self.log.recovery_point
        self.saved_start = self.log.log_start_offset

    # ---- appending

    def _batch(self, rows: list[Row], base_offset: int, as_leader: bool, **fields: Any) -> ModelBatch:
        """Computes the expected result of appending a batch with these rows."""
        now = self.clock.time_ms()
        append_time = as_leader and self.config.log_append_time
        records = [
            Record(
                key,
                value,
                now if append_time else self._time(distance),
                headers,
                base_offset + index,
                int(append_time),
            )
            for index, (key, value, distance, headers) in enumerate(rows)
        ]
        newest = max(-1, *(record.timestamp for record in records))
        return ModelBatch(base_offset, base_offset + len(rows) - 1, records, self.leader_epoch, newest, **fields)

    def _time(self, distance: int | None) -> int:
        return -1 if distance is None else self.clock.time_ms() + distance

    def _encode(self, rows: list[Row], **fields: Any) -> bytearray:
        return encode_rows(
            [(key, value, self._time(distance), headers) for key, value, distance, headers in rows], **fields
        )

    def _append_and_check(self, data: bytearray, batches: list[ModelBatch], origin: AppendOrigin) -> None:
        now = self.clock.time_ms()
        result = self.log.append_as_leader(data, self.leader_epoch, origin)
        newest = max(batches, key=lambda batch: batch.max_timestamp)
        assert result == (
            batches[0].base_offset,
            batches[-1].last_offset,
            newest.max_timestamp,
            newest.last_offset,
            now if self.config.log_append_time else -1,
            self.model.start,
            False,
        )
        for batch in batches:
            self.model.append(batch)

    @rule(lists=st.lists(ROWS, min_size=1, max_size=3), codec=CODECS, null_key=st.booleans(), times=st.integers(1, 4))
    def append(self, lists: list[list[Row]], codec: Compression, null_key: bool, times: int) -> None:
        for _ in range(times):
            self._append(lists, codec, null_key)

    def _append(self, lists: list[list[Row]], codec: Compression, null_key: bool) -> None:
        if null_key and not self.config.compact:
            lists = [[(None, *lists[0][0][1:]), *lists[0][1:]], *lists[1:]]
        data = bytearray()
        batches: list[ModelBatch] = []
        next_offset = self.model.end
        for rows in lists:
            data += self._encode(rows, codec=codec)
            batches.append(self._batch(rows, next_offset, as_leader=True))
            next_offset = batches[-1].last_offset + 1
        self._append_and_check(data, batches, AppendOrigin.CLIENT)

    @rule(rows=ROWS)
    def append_damaged(self, rows: list[Row]) -> None:
        data = self._encode(rows)
        data[-1] ^= 1
        with pytest.raises(CorruptRecordError, match="is corrupt: stored crc"):
            self.log.append_as_leader(data, self.leader_epoch)

    @rule(
        producer_id=PRODUCERS,
        rows=ROWS,
        codec=CODECS,
        move=st.sampled_from(
            ["next", "next", "next", "next", "again", "gap", "older epoch", "newer epoch", "newer, gap"]
        ),
        transactional=st.booleans(),
        pick=st.integers(0, 5),
    )
    def append_idempotent(
        self, producer_id: int, rows: list[Row], codec: Compression, move: str, transactional: bool, pick: int
    ) -> None:
        known = self.model.producers.get(producer_id, ModelProducer())
        epoch = max(known.epoch, 0)
        # An unknown producer may start at any sequence; near the maximum, sequences soon wrap to 0.
        follows = (known.last_sequence + 1) % 2**31 if known.epoch >= 0 else (2**31 - 3 if pick < 2 else 0)
        sequence = follows
        if move == "again" and known.batches:
            sent = known.batches[pick % len(known.batches)]
            sequence = sent.base_sequence
            rows = (rows * 4)[: sent.last_offset - sent.base_offset + 1]
        elif move == "gap":
            sequence = (follows + 1 + pick) % 2**31
        elif move == "older epoch":
            epoch -= 1
        elif move in ("newer epoch", "newer, gap"):
            epoch, sequence = epoch + 1, 0 if move == "newer epoch" else 3
        if epoch < 0:
            return
        fields: dict[str, Any] = {
            "producer_id": producer_id,
            "producer_epoch": epoch,
            "base_sequence": sequence,
            "transactional": transactional,
        }
        data = self._encode(rows, codec=codec, **fields)
        batch = self._batch(rows, self.model.end, as_leader=True, **fields)
        self._append_of_producer(data, batch, known, AppendOrigin.CLIENT)

    def _append_of_producer(
        self, data: bytearray, batch: ModelBatch, known: ModelProducer, origin: AppendOrigin
    ) -> None:
        duplicate = known.duplicate_of(batch)
        if duplicate is not None:
            result = self.log.append_as_leader(data, self.leader_epoch, origin)
            assert result.duplicate
            assert (result.base_offset, result.last_offset) == (duplicate.base_offset, duplicate.last_offset)
            return
        refusal = known.refusal(batch)
        if refusal is not None:
            with pytest.raises(refusal, match=str(batch.producer_id)):
                self.log.append_as_leader(data, self.leader_epoch, origin)
            return
        self._append_and_check(data, [batch], origin)

    @rule(
        steps=st.lists(st.tuples(PRODUCERS, ROWS, st.booleans()), min_size=1, max_size=4),
        fates=st.tuples(*[st.sampled_from([None, *ControlType])] * 3),
        codec=CODECS,
    )
    def append_transactions(
        self, steps: list[tuple[int, list[Row], bool]], fates: tuple[ControlType | None, ...], codec: Compression
    ) -> None:
        """Writes interleaved transactions of several producers, some of which stay open."""
        for producer_id, rows, roll in steps:
            self.append_idempotent(producer_id, rows, codec, "next", True, 1)
            if roll:
                self._roll()
        for producer_id, control_type in enumerate(fates, 1):
            if control_type is not None and producer_id in {step[0] for step in steps}:
                known = self.model.producers[producer_id]
                self.append_marker(producer_id, control_type, 0, max(known.coordinator_epoch, 0))

    @rule(
        producer_id=PRODUCERS,
        control_type=st.sampled_from(ControlType),
        newer_epoch=st.sampled_from([0, 0, 0, 1]),
        coordinator_epoch=st.integers(0, 2),
    )
    def append_marker(
        self, producer_id: int, control_type: ControlType, newer_epoch: int, coordinator_epoch: int
    ) -> None:
        known = self.model.producers.get(producer_id, ModelProducer())
        epoch = max(known.epoch, 0) + newer_epoch
        data, batch = self._marker(producer_id, control_type, epoch, coordinator_epoch, self.model.end, True)
        self._append_of_producer(data, batch, known, AppendOrigin.COORDINATOR)

    def _marker(
        self,
        producer_id: int,
        control_type: ControlType,
        epoch: int,
        coordinator_epoch: int,
        offset: int,
        as_leader: bool,
    ) -> tuple[bytearray, ModelBatch]:
        data = encode_marker(
            control_type,
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=self.clock.time_ms(),
            base_offset=offset,
            leader_epoch=self.leader_epoch,
        )
        key = b"\0\0\0" + bytes([control_type])
        value = b"\0\0" + coordinator_epoch.to_bytes(4, "big")
        batch = self._batch(
            [(key, value, 0, [])],
            offset,
            as_leader,
            producer_id=producer_id,
            producer_epoch=epoch,
            transactional=True,
            marker=control_type,
            coordinator_epoch=coordinator_epoch,
            is_control=True,
        )
        return data, batch

    @rule(
        pieces=st.lists(
            st.tuples(
                rows_with(st.sampled_from([*KEYS, None]), most=3),
                st.sampled_from([0, 0, 0, 1, 7]),
                st.sampled_from([-1, -1, 1, 2]),
                st.sampled_from(["data", "data", "transaction", "commit", "abort", "newer leader"]),
            ),
            min_size=1,
            max_size=3,
        ),
        codec=CODECS,
    )
    def append_as_follower(self, pieces: list[tuple[list[Row], int, int, str]], codec: Compression) -> None:
        """Appends what a leader may send: offsets with gaps, several leader epochs, validated producers."""
        data = bytearray()
        batches: list[ModelBatch] = []
        producers = copy.deepcopy(self.model.producers)
        next_offset = self.model.end
        for rows, gap, producer_id, kind in pieces:
            offset = next_offset + gap
            known = producers.get(producer_id, ModelProducer())
            epoch = max(known.epoch, 0)
            if kind == "newer leader":
                self.leader_epoch += 1
            if kind in ("commit", "abort") and producer_id > 0:
                control_type = ControlType.COMMIT if kind == "commit" else ControlType.ABORT
                raw, batch = self._marker(
                    producer_id, control_type, epoch, max(known.coordinator_epoch, 0), offset, as_leader=False
                )
            else:
                fields: dict[str, Any] = {}
                if producer_id > 0:
                    fields = {
                        "producer_id": producer_id,
                        "producer_epoch": epoch,
                        "base_sequence": (known.last_sequence + 1) % 2**31,
                        "transactional": kind == "transaction" or known.first_offset is not None,
                    }
                raw = self._encode(rows, base_offset=offset, codec=codec, leader_epoch=self.leader_epoch, **fields)
                batch = self._batch(rows, offset, as_leader=False, **fields)
            data += raw
            batches.append(batch)
            if producer_id > 0:
                producers.setdefault(producer_id, ModelProducer()).take(batch)
            next_offset = batch.last_offset + 1
        result = self.log.append_as_follower(data)
        assert (result.base_offset, result.last_offset) == (batches[0].base_offset, batches[-1].last_offset)
        for batch in batches:
            self.model.append(batch)

    @rule(epochs=st.sampled_from([0, 0, 1, 2]))
    def roll(self, epochs: int) -> None:
        self.leader_epoch += epochs
        self._roll()

    def _roll(self) -> None:
        segment = self.log.roll()
        assert segment is self.log.segments.active
        assert (segment.base_offset, segment.size) == (self.model.end, 0)
        # If the only segment was empty and its base offset too low, it was deleted.
        self.model.raise_start(self.log.segments.first.base_offset)

    # ---- reading

    @rule(
        data=st.data(),
        max_bytes=st.sampled_from([0, 1, 80, 150, 400, 1_000, 10**6]),
        isolation=st.sampled_from([FetchIsolation.TXN_COMMITTED, *FetchIsolation]),
        whole=st.booleans(),
        replicated=st.booleans(),
    )
    def read(
        self, data: st.DataObject, max_bytes: int, isolation: FetchIsolation, whole: bool, replicated: bool
    ) -> None:
        if replicated:
            self._move_high_watermark(self.model.end)
        offset = data.draw(st.integers(max(0, self.model.start - 2), self.model.end + 2), label="offset")
        if not self.model.start <= offset <= self.model.end:
            with pytest.raises(
                OffsetOutOfRangeError, match=f"Received request for offset {offset} for partition model-0"
            ):
                self.log.read(offset, max_bytes, isolation, whole)
            return
        result = self.log.read(offset, max_bytes, isolation, whole)
        stable = self.log.last_stable_offset
        assert (result.high_watermark, result.last_stable_offset) == (self.model.high_watermark, stable)
        assert result.log_start_offset == self.model.start
        end = {
            FetchIsolation.LOG_END: self.model.end,
            FetchIsolation.HIGH_WATERMARK: self.model.high_watermark,
            FetchIsolation.TXN_COMMITTED: stable,
        }[isolation]
        base_offset, expected = self._expected_slice(offset, end, max_bytes, whole)
        assert (result.slice.read() if result.slice is not None else b"") == expected
        if result.slice is not None:
            assert (result.slice.base_offset, len(result.slice)) == (base_offset, len(expected))
        if isolation is FetchIsolation.TXN_COMMITTED:
            assert result.aborted is not None
            self._check_committed(offset, split_batches(expected, allow_partial=True), result.aborted)
        else:
            assert result.aborted is None

    def _expected_slice(self, offset: int, end: int, max_bytes: int, whole: bool) -> tuple[int, bytes]:
        """Checks a read from the batch with the offset, or the next, to the end of its segment or readable range."""
        behind = [seen for seen in look(self.log) if seen.batch.last_offset >= offset]
        if not behind or offset >= end:
            return -1, b""
        first = behind[0]
        pieces = [
            seen.raw for seen in behind if seen.segment_base == first.segment_base and seen.batch.last_offset < end
        ]
        if max_bytes < len(first.raw) and not whole:
            return -1, b""
        return first.batch.base_offset, b"".join(pieces)[: max(max_bytes, len(first.raw))]

    def _check_committed(self, offset: int, batches: list[RecordBatch], aborted: list[AbortedTransaction]) -> None:
        """Filters like a client does, and compares the result with the outcomes of the transactions."""
        begins = sorted(aborted, key=lambda transaction: transaction.first_offset)
        left_out: set[int] = set()
        got: list[int] = []
        for batch in batches:
            while begins and begins[0].first_offset <= batch.last_offset:
                left_out.add(begins.pop(0).producer_id)
            if batch.is_control:
                if batch.count and batch.records().key(0) == b"\0\0\0\0":
                    left_out.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in left_out):
                got += batch.records().offsets()
        fates = self.model.fates()
        covered = {batch.base_offset for batch in batches}
        expected = [
            record.offset
            for batch in self.model.present()
            if batch.base_offset in covered and not batch.is_control and fates[batch] is not Fate.ABORTED
            for record in batch.records
        ]
        assert [at for at in got if at >= offset] == [at for at in expected if at >= offset]
        for batch in self.model.present():
            assert batch.base_offset not in covered or fates[batch] is not Fate.OPEN

    @rule(data=st.data())
    def find_timestamps(self, data: st.DataObject) -> None:
        known = sorted({record.timestamp for record in self.model.records()}) or [0]
        timestamp = max(0, data.draw(st.sampled_from(known)) + data.draw(st.sampled_from([0, 0, -1, 1])))
        found = next(((r.timestamp, r.offset) for r in self.model.records() if r.timestamp >= timestamp), None)
        assert self.log.find_timestamp(timestamp) == found
        newest = max(self.model.present(), key=lambda batch: batch.max_timestamp, default=None)
        expected = None
        if newest is not None and newest.max_timestamp >= 0:
            holders = [record.offset for record in newest.records if record.timestamp == newest.max_timestamp]
            expected = (newest.max_timestamp, holders[0] if holders else newest.last_offset)
        assert self.log.max_timestamp() == expected

    @rule(fetch_bytes=st.sampled_from([1, 300, 10_000]))
    def mirror(self, fetch_bytes: int) -> None:
        """A new follower that replicates the log has the same content."""
        batches = self.model.readable()
        start = min(self.model.start, batches[0].base_offset) if batches else self.model.start
        context = dataclasses.replace(self.context, runner=StepRunner(inline=True), scheduler=None)
        follower, _ = open_log(self.directory / "mirror-0", TP, self.config, context)
        follower.truncate_fully_and_start_at(start)
        next_offset = self.model.start
        while (fetched := self.log.read(next_offset, fetch_bytes)).slice is not None:
            whole = fetched.slice.batches()
            assert whole, "a read that makes no progress"
            follower.append_as_follower(b"".join(batch.raw for batch in whole))
            next_offset = whole[-1].next_offset
        assert [seen.raw for seen in look(follower)] == [
            seen.raw for seen in look(self.log) if seen.batch.last_offset >= self.model.start
        ]
        expected = ModelLog()
        for batch in batches:
            # An empty marker batch remains of a transaction that compaction removed.
            expected.append(batch if batch.records else _without_marker(batch))
        assert _producers_of(follower) == expected.producers
        assert follower.epochs.entries == expected.epochs
        follower.abandon()
        shutil.rmtree(self.directory / "mirror-0")

    # ---- offsets

    @rule(data=st.data())
    def update_high_watermark(self, data: st.DataObject) -> None:
        offset = data.draw(st.one_of(st.just(self.model.end), st.integers(0, self.model.end + 2)), label="offset")
        self._move_high_watermark(offset)

    def _move_high_watermark(self, offset: int) -> None:
        self.model.move_high_watermark(max(self.model.start, min(offset, self.model.end)))
        assert self.log.update_high_watermark(offset) == self.model.high_watermark

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(max(0, self.model.start - 1), self.model.high_watermark + 1), label="offset")
        if offset > self.model.high_watermark:
            with pytest.raises(OffsetOutOfRangeError, match=f"high watermark {self.model.high_watermark}$"):
                self.log.delete_records(offset)
            return
        self.model.raise_start(offset)
        assert self.log.delete_records(offset) == self.model.start

    @rule(data=st.data(), back=st.one_of(st.integers(-1, 4), st.integers(-1, 30)))
    def truncate(self, data: st.DataObject, back: int) -> None:
        offset = max(0, self.model.end - back)
        changed = self.log.truncate_to(offset)
        assert changed == (offset < self.model.end)
        if not changed:
            return
        if offset < self.model.start:
            self.model.start_over(offset)
            self.saved_start = offset
            return
        self.model.truncate(offset)
        self._reconcile_producers()

    @precondition(lambda self: self.model.end > 30)
    @rule(back=st.integers(-10, 10))
    def start_over(self, back: int) -> None:
        offset = max(0, self.model.end - back)
        self.log.truncate_fully_and_start_at(offset)
        self.model.start_over(offset)
        self.saved_start = offset

    # ---- deleting

    @rule(replicated=st.booleans())
    def retention(self, replicated: bool) -> None:
        if replicated:
            self._move_high_watermark(self.model.end)
        doomed = self._expected_to_go()
        active_goes = bool(doomed) and doomed[-1] is self.log.segments.active
        ends = [self.log.segments.end_of(segment, self.model.end) for segment in doomed]
        kept = [segment for segment in self.log.segments if segment not in doomed]
        assert delete_old_segments(self.log) == len(doomed)
        if doomed:
            self.model.raise_start(ends[-1])
            self.model.drop_below(ends[-1])
        assert list(self.log.segments)[: len(kept)] == kept
        assert len(self.log.segments) == len(kept) + active_goes

    def _expected_to_go(self) -> list[LogSegment]:
        seen = look(self.log)
        now = self.clock.time_ms()
        remaining = list(self.log.segments)
        doomed: list[LogSegment] = []
        start = self.model.start

        def take_while(is_old: Callable[[LogSegment, int], bool]) -> None:
            nonlocal start
            while remaining:
                segment = remaining[0]
                end = self.log.segments.end_of(segment, self.model.end)
                if end > self.model.high_watermark or not is_old(segment, end):
                    return
                if segment is self.log.segments.active and not segment.size:
                    return
                doomed.append(remaining.pop(0))
                start = max(start, end)

        def newest(segment: LogSegment) -> int:
            times = [one.batch.max_timestamp for one in seen if one.segment_base == segment.base_offset]
            return max(times) if max(times, default=-1) >= 0 else segment.created_ms

        if self.config.delete and self.config.retention_ms >= 0:
            take_while(lambda segment, _: now - newest(segment) > self.config.retention_ms)
        if self.config.delete and self.config.retention_bytes >= 0:
            take_while(lambda segment, _: sum(left.size for left in remaining[1:]) >= self.config.retention_bytes)
        take_while(lambda _, end: end <= start)
        return doomed

    @rule(ms=st.sampled_from([1, 100, 1_000, 2_500, 30_000]))
    def pass_time(self, ms: int) -> None:
        self.clock.advance(ms)
        assert self.context.scheduler is not None
        self.context.scheduler.tick()
        if ms >= 1_000:
            self._expire_producers()

    def _expire_producers(self) -> None:
        expected = self.model.expired(self.clock.time_ms(), PRODUCER_EXPIRATION_MS)
        assert sorted(self.log.remove_expired_producers(PRODUCER_EXPIRATION_MS)) == sorted(expected)
        for producer_id in expected:
            del self.model.producers[producer_id]
        self.model.ever_expired.update(expected)

    # ---- compaction

    @precondition(lambda self: self.job is None and self.config.compact)
    @rule(
        keys=st.sampled_from([8, 12, 1_000]),
        ms=st.sampled_from([0, 0, 500, 3_000]),
        roll=st.booleans(),
        rounds=st.integers(1, 3),
    )
    def compact(self, keys: int, ms: int, roll: bool, rounds: int) -> None:
        """Compacts repeatedly, like the manager does."""
        self._move_high_watermark(self.model.end)
        if roll:
            self._roll()
        for _ in range(rounds):
            self.begin_cleaning(keys, 1_000)
            if self.job is not None:
                self.finish_cleaning()
            self.clock.advance(ms)

    @precondition(lambda self: self.job is None and self.config.compact)
    @rule(keys=st.sampled_from([8, 12, 1_000]), io_buffer_bytes=st.sampled_from([64, 1_000]), run=st.booleans())
    def begin_cleaning(self, keys: int, io_buffer_bytes: int, run: bool = True) -> None:
        self.job = plan_cleaning(
            self.log, CleanerConfig(dedupe_buffer_bytes=keys * 24, load_factor=0.9, io_buffer_bytes=io_buffer_bytes)
        )
        if self.job is None:
            return
        self.job_model = copy.deepcopy(self.model)
        self.job_ran = run
        if run:
            self.job.run()
        assert self.job.end_offset <= min(self.log.last_stable_offset, self.log.segments.active.base_offset)
        assert self.job.first_dirty_offset == max(self.model.cleaned_up_to, self.log.segments.first.base_offset)

    @precondition(lambda self: self.job is not None)
    @rule()
    def finish_cleaning(self) -> None:
        job, self.job = self.job, None
        assert job is not None
        if not self.job_ran:
            try:
                job.run()
            except CorruptRecordError:
                assert not job.applies_to(self.log)
                return
        before = copy.deepcopy(self.model)
        applies = job.applies_to(self.log)
        finished = finish_cleaning(self.log, job)
        assert finished == (applies and self.log.recovery_point >= job.end_offset)
        if not finished:
            return  # checked against the model by the next invariant: nothing has changed
        assert job.first_dirty_offset < job.cleaned_up_to <= job.end_offset
        assert self.log.cleaned_up_to == job.cleaned_up_to
        cleaned = self.job_model
        cleaned.clean(job.first_dirty_offset, job.cleaned_up_to, job.now_ms, self.config.delete_retention_ms)
        self.model.cleaned_up_to = job.cleaned_up_to
        self._check_cleaned(before, job)
        left = {batch.base_offset: batch for batch in cleaned.batches}
        for batch in self.model.batches:
            # Later batches may have been truncated and rewritten since the job was planned.
            if batch.base_offset < job.cleaned_up_to and batch.there:
                then = left[batch.base_offset]
                batch.records, batch.there = then.records, then.there
                batch.horizon, batch.max_timestamp = then.horizon, then.max_timestamp

    def _check_cleaned(self, before: ModelLog, job: CleaningJob) -> None:
        """Checks the invariants of compaction."""
        note(f"cleaned from {job.first_dirty_offset} up to {job.cleaned_up_to}")
        seen = look(self.log)
        after = {row.offset: row for one in seen for row in one.rows}
        headers = {one.batch.base_offset for one in seen}
        was = {record.offset: record for batch in before.present() for record in batch.records}
        for offset, row in after.items():
            assert was[offset] == row
        horizons = {record.offset: batch.horizon for batch in before.present() for record in batch.records}
        for offset, record in was.items():
            if offset not in after:
                assert offset < job.cleaned_up_to
                newest_allowed = job.now_ms - self.config.min_compaction_lag_ms
                assert record.timestamp <= newest_allowed or not self.config.min_compaction_lag_ms
        for record in before.table().values():
            horizon = horizons[record.offset]
            if record.value is not None or horizon is None or horizon > job.now_ms:
                assert record.offset in after, f"{record} was the last of its key"
        for transaction in before.transactions():
            if any(record.offset in after for batch in transaction.batches for record in batch.records):
                assert transaction.marker is None or transaction.marker.last_offset in after
        for producer in before.producers.values():
            if producer.batches and producer.batches[-1].base_offset in {b.base_offset for b in before.present()}:
                assert producer.batches[-1].base_offset in headers

    # ---- flushing, shutdown, crashes

    @rule(how=st.sampled_from(["wait", "begin", "finish", "checkpoint"]))
    def flush(self, how: str) -> None:
        if how == "wait":
            self.log.flush()
            assert self.log.recovery_point == self.model.end
        elif how == "begin":
            self.log.flush_in_background()
        elif how == "finish":
            self.runner.run()
        else:
            self._checkpoint()

    @rule(
        changes=CONFIGS, which=st.sampled_from(["cleanup.policy", "segment.bytes", "compression.type", "retention.ms"])
    )
    def alter_config(self, changes: dict[str, Any], which: str) -> None:
        self.log.config = self.config = _altered(self.config, which, changes[which])

    @rule()
    def reopen(self) -> None:
        self._drop_job()
        self.log.close()
        assert self.log.recovery_point == self.model.end
        self.runner.run()
        active = self.log.segments.active
        report = self._open(clean=True, recovery_point=self.model.end, log_start_offset=self.model.start)
        if active.size or active.base_offset == self.model.end:
            assert (report.scanned_batches, report.truncated_bytes, report.rebuilt_indexes) == (0, 0, 0)
            self.model.epochs = [entry for entry in self.model.epochs if entry[1] < self.model.end]
        else:
            # Truncated within the first batch of a segment: the files do not show the offsets before the end.
            self._end_at(active.base_offset)
        self.model.high_watermark = self.model.start
        self.model.raise_start(self.log.segments.first.base_offset)
        self._reconcile_producers()
        self._checkpoint()

    def _end_at(self, offset: int) -> None:
        """Applies a recovery that ended here; batches entirely below the log start are removed."""
        if offset < self.model.start:
            self.model.start_over(self.model.start)
        else:
            self.model.truncate(offset)

    @rule(data=st.data(), torn=st.booleans())
    def crash(self, data: st.DataObject, torn: bool) -> None:
        """Crashes the process; with `torn`, some unsynced bytes are lost."""
        self._drop_job()
        seen = look(self.log)
        end = max(self.log.segments.active.base_offset, *(one.batch.next_offset for one in seen), 0)
        self.log.abandon()
        self.runner.forget()
        if torn:
            end = self._tear(data, seen, end)
        first_base = self.log.segments.first.base_offset
        self.model.start = max(self.saved_start, first_base)
        self._open(recovery_point=self.saved_recovery_point, log_start_offset=self.saved_start)
        self._end_at(end)
        self.model.high_watermark = self.model.start
        self._reconcile_producers()
        self._reconcile_epochs()
        self._checkpoint()

    def _tear(self, data: st.DataObject, seen: list[SeenBatch], end: int) -> int:
        """Truncates a file somewhere after the synced bytes. Returns the expected log end."""
        unsynced = [
            segment
            for segment in self.log.segments
            if segment.existing_paths() and self.disk.synced_bytes(segment.path()) < segment.path().stat().st_size
        ]
        if not unsynced:
            return end
        segment = data.draw(st.sampled_from(unsynced), label="torn segment")
        cut = data.draw(st.integers(self.disk.synced_bytes(segment.path()), segment.size), label="cut at")
        own = [one for one in seen if one.segment_base == segment.base_offset]
        whole = [one for one in own if one.position + len(one.raw) <= cut]
        with segment.path().open("r+b") as file:
            file.truncate(cut)
        if len(whole) == len(own):
            return end  # all of it had reached the disk
        return whole[-1].batch.next_offset if whole else segment.base_offset

    def _drop_job(self) -> None:
        if self.job is not None:
            self.job.discard()
            self.job = None

    def _reconcile_producers(self) -> None:
        """Checks reloaded producer state: required entries are there, and the model adopts the others."""
        everything: dict[int, ModelProducer] = {}
        sent: dict[int, set[tuple[int, Sent]]] = {}
        newest: dict[int, ModelBatch] = {}
        newest_data: dict[int, ModelBatch] = {}
        for batch in self.model.batches:
            if batch.producer_id < 0:
                continue
            producer = everything.setdefault(batch.producer_id, ModelProducer())
            producer.take(batch)
            newest[batch.producer_id] = batch
            if batch.marker is None:
                newest_data[batch.producer_id] = batch
                sent.setdefault(batch.producer_id, set()).add((batch.producer_epoch, producer.batches[-1]))

        def came_back(batch: ModelBatch | None) -> bool:
            is_left = batch is not None and batch.there and batch.last_offset >= self.model.start
            return is_left and bool(batch.records or not batch.is_control)

        found = _producers_of(self.log)
        for producer_id, producer in everything.items():
            if producer_id not in found:
                assert producer_id in self.model.ever_expired or not came_back(newest[producer_id])
                continue
            back = found[producer_id]
            assert back.epoch <= producer.epoch
            assert {(back.epoch, one) for one in back.batches} <= sent.get(producer_id, set())
            if came_back(newest[producer_id]) and producer_id not in self.model.ever_expired:
                assert back.epoch == producer.epoch
                if producer.batches and came_back(newest_data[producer_id]):
                    assert back.last_sequence == producer.last_sequence
        assert found.keys() <= everything.keys()
        for transaction in self.model.transactions():
            left = [batch.base_offset for batch in transaction.left(self.model.start)]
            if transaction.marker is None and left:
                firsts = (transaction.batches[0].base_offset, left[0])
                assert found[transaction.producer_id].first_offset in firsts
        self.model.producers = found
        self.model.unreplicated = {}
        self.saved_start = self.model.start

    def _reconcile_epochs(self) -> None:
        self.model.epochs = [(entry.epoch, entry.start_offset) for entry in self.log.epochs.entries]
        for batch in self.model.readable():
            if self.model.epochs and batch.base_offset >= self.model.epochs[0][1]:
                assert self.log.epochs.epoch_for_offset(batch.base_offset) == batch.leader_epoch

    # ---- invariants

    @invariant()
    def everything_is_as_it_should_be(self) -> None:
        self._check_offsets()
        self.model.drop_below(self.log.segments.first.base_offset)
        seen = look(self.log)
        self._check_content(seen)
        self._check_epochs()
        assert _producers_of(self.log) == self.model.producers
        self._check_what_is_committed()
        for segment in self.log.segments:
            self._check_indexes(segment, [one for one in seen if one.segment_base == segment.base_offset])

    def _check_offsets(self) -> None:
        log, model = self.log, self.model
        assert (log.log_start_offset, log.log_end_offset) == (model.start, model.end)
        assert log.high_watermark == model.high_watermark
        assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.log_end_offset
        lowest, highest = model.stable_bounds()
        assert lowest <= log.last_stable_offset <= highest
        assert log.recovery_point <= log.log_end_offset
        assert log.segments.first.base_offset <= log.log_start_offset

    def _check_content(self, seen: list[SeenBatch]) -> None:
        assert [_describe_seen(one) for one in seen] == [_describe_model(batch) for batch in self.model.present()]
        assert self.log.size_in_bytes == sum(len(one.raw) for one in seen)
        paths = {segment.base_offset: segment.path() for segment in self.log.segments}
        synced = {base: self.disk.synced_bytes(path) for base, path in paths.items()}
        for one in seen:
            assert one.segment_base <= one.batch.base_offset
            assert all(base <= one.segment_base or base > one.batch.last_offset for base in paths)
            if self.model.start <= one.batch.last_offset < self.log.recovery_point:
                assert one.position + len(one.raw) <= synced[one.segment_base], "the recovery point promises too much"

    def _check_what_is_committed(self) -> None:
        """Reads all stable records like a client does."""
        offset = self.model.start
        while (result := self.log.read(offset, 10**6, FetchIsolation.TXN_COMMITTED)).slice is not None:
            batches = result.slice.batches()
            assert result.aborted is not None
            self._check_committed(offset, batches, result.aborted)
            offset = batches[-1].next_offset
        stable = [batch for batch in self.model.readable() if batch.last_offset < self.log.last_stable_offset]
        assert all(batch.last_offset < offset for batch in stable), "a read stopped before the end"

    def _check_epochs(self) -> None:
        assert self.log.epochs.entries == self.model.epochs
        for epoch in range(-1, self.leader_epoch + 2):
            assert self.log.end_offset_for_epoch(epoch) == self.model.end_offset_for(epoch)

    @staticmethod
    def _check_indexes(segment: LogSegment, own: list[SeenBatch]) -> None:
        entries = segment.offset_index.entries()
        assert set(entries) <= {(one.batch.last_offset, one.position) for one in own}
        assert entries == sorted(set(entries))
        for timestamp, offset in segment.time_index.entries():
            up_to = [one.batch for one in own if one.batch.last_offset <= offset]
            assert up_to
            assert up_to[-1].last_offset == offset
            assert max(batch.max_timestamp for batch in up_to) == timestamp == up_to[-1].max_timestamp
        assert segment.max_timestamp[0] == max((one.batch.max_timestamp for one in own), default=-1)
        for one in own:
            found = segment.find(one.batch.last_offset)
            assert found is not None
            assert (found.position, found.base_offset) == (one.position, one.batch.base_offset)


def _altered(config: LogConfig, key: str, value: object) -> LogConfig:
    return dataclasses.replace(config, **{key.replace(".", "_"): LOG_KEYS.keys[key].parse(value)})


def _without_marker(batch: ModelBatch) -> ModelBatch:
    if not batch.is_control:
        return batch
    emptied = copy.copy(batch)
    emptied.marker = None
    return emptied


def _producers_of(log: Log) -> dict[int, ModelProducer]:
    return {
        producer_id: ModelProducer.of(entry) for producer_id, entry in log.producers.entries.items() if entry.epoch >= 0
    }


def _describe_seen(one: SeenBatch) -> tuple[object, ...]:
    batch = one.batch
    return (
        batch.base_offset,
        batch.last_offset,
        batch.leader_epoch,
        batch.max_timestamp,
        (batch.producer_id, batch.producer_epoch, batch.base_sequence),
        (batch.is_transactional, batch.is_control),
        batch.delete_horizon_ms,
        one.rows,
    )


def _describe_model(batch: ModelBatch) -> tuple[object, ...]:
    return (
        batch.base_offset,
        batch.last_offset,
        batch.leader_epoch,
        batch.max_timestamp,
        (batch.producer_id, batch.producer_epoch, batch.base_sequence),
        (batch.transactional, batch.is_control),
        batch.horizon,
        batch.records,
    )


def test_log_behaves_like_model(tmp_path: Path) -> None:
    LogMachine.root = tmp_path
    wanted = os.environ.get("HEADRACE_MODEL_EXAMPLES")
    left = int(wanted or 150)
    while left > 0:
        # In several runs: Hypothesis keeps every example of a run, gigabytes in a long one.
        examples = min(left, 500)
        left -= examples
        run_state_machine_as_test(
            LogMachine,
            settings=settings(
                max_examples=examples,
                stateful_step_count=40,
                deadline=None,
                derandomize=wanted is None,
                database=None,
                suppress_health_check=list(HealthCheck),
                print_blob=True,
                report_multiple_bugs=False,
            ),
        )
