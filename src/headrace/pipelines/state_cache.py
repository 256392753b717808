"""The states of source partitions in a worker process: loaded from files, kept between batches, saved with a batch.

Runs in Spark's Python workers. Spark gives a partition to another process at any time. The new process catches up: it
restores the newest snapshot and applies the deltas after it, or only the deltas that its own, older copy lacks.

Invariants:
- A task removes the state from the cache before it changes it, and returns it only after its commit. So a failed
  attempt leaves nothing behind.
- The state before batch N is the same in every process. Files of batch N and later are never loaded for it.
- Files are deleted only if a snapshot of an earlier batch than the current one replaces them: a replay of the current
  batch does not need them, nor does a merge.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from headrace.pipelines.state_files import DELTA, NO_BATCH, SNAPSHOT, StateFile, StateFileError, StateFiles

__all__ = ["HeldState", "StateStore"]

_MAX_DELTAS = 200
"""The maximum number of deltas after a snapshot."""
_MIN_SNAPSHOT_BYTES = 64 * 1024
"""A snapshot is written when the deltas after the last one have as many bytes as the last one, or this number."""


@dataclass
class HeldState:
    """The state of a partition after a batch."""

    state: Any
    query_id: str
    batch_id: int = NO_BATCH
    """The batch after which the partition has this state."""
    last_file: int = NO_BATCH
    """The batch of the partition's newest file."""
    deltas: int = 0
    """The number of deltas after the newest snapshot."""
    delta_bytes: int = 0
    snapshot_bytes: int = 0
    snapshot_batch: int | None = None
    """The batch of the newest snapshot, if older files may exist."""


_cache: dict[tuple[str, str, int], HeldState] = {}


class StateStore:
    """The state of one source partition of a query."""

    def __init__(self, directory: str, query_id: str, topic: str, partition: int, create: Callable[[], Any]) -> None:
        self._directory = directory
        self._query_id = query_id
        self._topic = topic
        self._key = (directory, topic, partition)
        self._create = create
        self._files = StateFiles(directory, topic, partition)

    def take(self, batch_id: int) -> HeldState:
        """Removes the state from the cache and returns it as it was before a batch."""
        held = _cache.pop(self._key, None)
        if held is not None and held.query_id == self._query_id:
            if held.batch_id == batch_id - 1:
                return held
            # A copy that is older only lacks some deltas, unless they are already deleted.
            if held.batch_id < batch_id and self._apply_deltas(held, self._files, self._files.files_before(batch_id)):
                return held
        return self._load(self._files, batch_id)

    def take_merged(self, batch_id: int, partitions: Iterable[int]) -> HeldState:
        """Returns the merged states of all partitions of the topic, as they were before a batch."""
        _cache.pop(self._key, None)
        merged: HeldState | None = None
        for partition in partitions:
            held = self._load(StateFiles(self._directory, self._topic, partition), batch_id)
            if merged is None:
                merged = held
            else:
                merged.state.merge(held.state)
        own_files = self._files.files_before(batch_id)
        state = merged.state if merged is not None else self._create()
        return HeldState(state, self._query_id, last_file=own_files[-1].batch_id if own_files else NO_BATCH)

    def _load(self, files: StateFiles, batch_id: int) -> HeldState:
        held = HeldState(self._create(), self._query_id)
        listed = files.files_before(batch_id)
        snapshot = next((file for file in reversed(listed) if file.kind == SNAPSHOT), None)
        if snapshot is not None:
            _, content = files.read(snapshot)
            held.state.restore(content)
            held.last_file = held.batch_id = snapshot.batch_id
            held.snapshot_bytes = len(content)
            held.snapshot_batch = snapshot.batch_id if listed[0].batch_id < snapshot.batch_id else None
        if not self._apply_deltas(held, files, listed):
            first = next(file for file in listed if file.kind == DELTA and file.batch_id > held.last_file)
            raise StateFileError(
                f"state file {files.path(first)} follows batch {files.read(first)[0]}, whose file is missing"
            )
        return held

    def _apply_deltas(self, held: HeldState, files: StateFiles, listed: list[StateFile]) -> bool:
        """Applies the deltas after the held state's last file. Returns False if one of them is missing."""
        for file in listed:
            if file.kind == SNAPSHOT:
                if file.batch_id > held.last_file:
                    return False  # without a delta of this batch: the snapshot of merged states
                if file.batch_id == held.last_file and held.deltas:
                    held.snapshot_bytes += held.delta_bytes
                    held.deltas = held.delta_bytes = 0
            elif file.batch_id > held.last_file:
                previous, content = files.read(file)
                if previous != held.last_file:
                    return False
                held.state.apply_delta(content)
                held.last_file = held.batch_id = file.batch_id
                held.deltas += 1
                held.delta_bytes += len(content)
        return True

    def save(self, held: HeldState, batch_id: int, *, is_merged: bool) -> None:
        """Writes what the batch changed. Call it before the batch commits, and `keep` after."""
        delta = held.state.take_delta()
        if held.snapshot_batch is not None and held.snapshot_batch < batch_id:
            self._files.delete_before(held.snapshot_batch)
            held.snapshot_batch = None
        if delta and not is_merged:
            self._files.write(StateFile(batch_id, DELTA), held.last_file, delta)
            held.last_file = batch_id
            held.deltas += 1
            held.delta_bytes += len(delta)
        if is_merged or held.deltas >= _MAX_DELTAS or held.delta_bytes >= self._snapshot_threshold(held):
            content = held.state.snapshot()
            self._files.write(StateFile(batch_id, SNAPSHOT), held.last_file, content)
            held.last_file = held.snapshot_batch = batch_id
            held.deltas = held.delta_bytes = 0
            held.snapshot_bytes = len(content)

    @staticmethod
    def _snapshot_threshold(held: HeldState) -> int:
        return max(_MIN_SNAPSHOT_BYTES, held.snapshot_bytes)

    def keep(self, held: HeldState, batch_id: int) -> None:
        """Returns the state to the cache after the batch is committed."""
        held.batch_id = batch_id
        _cache[self._key] = held
