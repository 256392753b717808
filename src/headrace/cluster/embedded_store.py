"""The coordination store of a single process: a tree in memory, backed by an SQLite file.

Reads are lookups in memory. A change is prepared, committed to SQLite, and then applied to the tree, so every value a
caller reads is on disk. Changes are serialized in the order of the calls.

Commits run in a thread. On a fast disk a commit takes 0.2 ms, but up to 10 ms while the log is written at full speed.
The event loop must not block that long. A change of only ephemeral nodes needs no commit.

Several sessions can share one tree (`new_session`): a cluster in one process, for tests.
"""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from headrace.cluster import znodes
from headrace.cluster.journal import Journal
from headrace.cluster.node_tree import Change, Node, Tree
from headrace.cluster.store import (
    ANY_VERSION,
    ConnectionLoss,
    Create,
    Delete,
    Operation,
    OperationResult,
    SessionExpired,
    SessionListener,
    SessionState,
    Set,
    Stat,
    StoreError,
    Watch,
    WatchEvent,
)
from headrace.common.clock import Clock


class _Shared:
    """The state that all sessions of one store share."""

    def __init__(self, journal: Journal | None, clock: Clock):
        self.journal = journal
        self.clock = clock
        try:
            self.tree = Tree(journal.nodes if journal else {}, journal.first_zxid if journal else 0)
        except StoreError as error:
            assert journal is not None
            journal.close()
            raise StoreError(f"Coordination store {journal.path} is corrupt: {error}") from None
        self.sessions: dict[int, EmbeddedStore] = {}
        self._next_session = (journal.first_zxid if journal else 0) + 1
        self._lock = asyncio.Lock()
        self._thread: ThreadPoolExecutor | None = None
        self._state_unknown = False

    def open_session(self, store: "EmbeddedStore") -> int:
        session_id, self._next_session = self._next_session, self._next_session + 1
        self.sessions[session_id] = store
        return session_id

    async def change(self, operations: Sequence[Operation], session_id: int) -> list[OperationResult]:
        # In a separate task: cancelling the caller must not leave the file ahead of the tree.
        return await asyncio.shield(asyncio.create_task(self._change(operations, session_id)))

    async def _change(self, operations: Sequence[Operation], session_id: int) -> list[OperationResult]:
        async with self._lock:
            if session_id not in self.sessions:
                raise SessionExpired(f"Session {session_id:#x} has expired or was closed")
            if self._state_unknown:
                raise ConnectionLoss("A commit was interrupted; open the store again")
            change = self.tree.prepare(operations, session_id, self.clock.time_ms())
            await self._commit(change)
            self._apply(change)
            return change.results

    async def _commit(self, change: Change) -> None:
        durable = self._durable_part(change)
        if self.journal is None or not durable:
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="headrace-coordination")
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self.journal.commit, durable)
        except asyncio.CancelledError:
            self._state_unknown = True
            raise

    def _durable_part(self, change: Change) -> dict[str, Node | None]:
        """Returns the persistent nodes of a change: ephemeral nodes are not written to the file."""
        durable: dict[str, Node | None] = {}
        for path, node in change.nodes.items():
            if node is not None and not node.ephemeral_owner:
                durable[path] = node
            elif (before := self.tree.exists(path)) is not None and not before.ephemeral_owner:
                durable[path] = None
        return durable

    def _apply(self, change: Change) -> None:
        loop = asyncio.get_running_loop()
        for session_id, watch, event in self.tree.apply(change):
            loop.call_soon(self._call, session_id, watch, event)

    def _call(self, session_id: int, watch: Watch, event: WatchEvent) -> None:
        if session_id in self.sessions:
            watch(event)

    async def end_session(self, session_id: int) -> None:
        """Deletes the session's ephemeral nodes and its watches."""
        async with self._lock:
            if self.sessions.pop(session_id, None) is None:
                return
            self.tree.drop_watches(session_id)
            paths = self.tree.owned_by(session_id)
            if paths:
                self._apply(self.tree.prepare([Delete(path) for path in paths], session_id, self.clock.time_ms()))

    def close_if_unused(self) -> None:
        if self.sessions:
            return
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
        if self.journal is not None:
            self.journal.close()
            self.journal = None


class EmbeddedStore:
    """A session on a store in this process. Implements `store.CoordinationStore`."""

    def __init__(
        self, path: Path | None, clock: Clock, *, cluster_id: str | None = None, _shared: _Shared | None = None
    ):
        """Opens or creates the file. Without a path the store is in memory only. Raises StoreError if the file is in
        use, corrupt, or not a coordination store, or if it belongs to another cluster than `cluster_id`."""
        self._shared = _shared or _Shared(_open_journal(path, cluster_id) if path is not None else None, clock)
        self._listeners: list[SessionListener] = []
        self._session_id = self._shared.open_session(self)

    def new_session(self) -> "EmbeddedStore":
        """Returns another session on the same tree, with its own ephemeral nodes and watches."""
        return EmbeddedStore(None, self._shared.clock, _shared=self._shared)

    @property
    def session_id(self) -> int:
        return self._session_id

    # ---- reading

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        self._check_open()
        data_and_stat = self._shared.tree.get(path)
        if watch is not None:
            self._shared.tree.watch_data(path, self._session_id, watch)
        return data_and_stat

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        self._check_open()
        stat = self._shared.tree.exists(path)
        if watch is not None:
            self._shared.tree.watch_data(path, self._session_id, watch)
        return stat

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        self._check_open()
        names = self._shared.tree.children(path)
        if watch is not None:
            self._shared.tree.watch_children(path, self._session_id, watch)
        return names

    def _check_open(self) -> None:
        if self._session_id not in self._shared.sessions:
            raise SessionExpired(f"Session {self._session_id:#x} has expired or was closed")

    # ---- writing

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        (created_path,) = await self.multi([Create(path, data, ephemeral, sequential)])
        assert isinstance(created_path, str)
        return created_path

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        (stat,) = await self.multi([Set(path, data, version)])
        assert isinstance(stat, Stat)
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path, version)])

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        self._check_open()
        return await self._shared.change(operations, self._session_id)

    # ---- session

    def add_session_listener(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    async def expire_session(self) -> None:
        """Expires the session as ZooKeeper does after missing heartbeats, then opens a new one."""
        await self._shared.end_session(self._session_id)
        self._notify_listeners(SessionState.LOST)
        self._session_id = self._shared.open_session(self)
        self._notify_listeners(SessionState.ESTABLISHED)

    def _notify_listeners(self, state: SessionState) -> None:
        for listener in tuple(self._listeners):
            listener(state)

    async def close(self) -> None:
        await self._shared.end_session(self._session_id)
        self._shared.close_if_unused()


def _open_journal(path: Path, cluster_id: str | None) -> Journal:
    def check(nodes: Mapping[str, Node]) -> None:
        node = nodes.get(znodes.CLUSTER_ID)
        found = znodes.decode_cluster_id(node.data) if node is not None else None
        if cluster_id is not None and found is not None and found != cluster_id:
            raise StoreError(
                f"Coordination store {path} belongs to cluster {found}, but its directory to cluster {cluster_id} "
                "(meta.properties). Restore the store of that cluster"
            )

    return Journal(path, check)
