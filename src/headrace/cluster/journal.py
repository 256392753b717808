"""The embedded store's file: an SQLite database with one table, a row for each persistent node.

A commit is on disk when it returns (`synchronous=FULL`, write-ahead log). Ephemeral nodes are never written: they end
with the process, so there is nothing to clean up after a crash. `user_version` counts how often the file was opened. It
is the upper half of every zxid, so zxids, and therefore broker epochs, increase across restarts.

Only one process can open the file: it locks `<file>.lock`, which contains its process id.
"""

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from headrace.cluster.node_tree import Node
from headrace.cluster.store import ConnectionLoss, StoreError

FORMAT = int.from_bytes(b"HdR1")
"""SQLite's `application_id`: the file type and the version of its layout."""
_COUNTER_BITS = 32

_CREATE = """
CREATE TABLE nodes (
    path TEXT PRIMARY KEY, data BLOB NOT NULL, version INTEGER NOT NULL, czxid INTEGER NOT NULL, mzxid INTEGER NOT NULL,
    ctime_ms INTEGER NOT NULL, mtime_ms INTEGER NOT NULL, next_sequence INTEGER NOT NULL
) WITHOUT ROWID
"""
_SAVE = "INSERT OR REPLACE INTO nodes VALUES (?, ?, ?, ?, ?, ?, ?, ?)"


class Journal:
    """The open database. `commit` may be called from any thread, but from one at a time."""

    def __init__(self, path: Path, check: Callable[[Mapping[str, Node]], None] = lambda _: None):
        """Opens or creates the file. `check` gets the nodes of an existing file before anything is written, and raises
        if this process must not use it."""
        self.path = path
        self._check = check
        self._lock_fd = _take_lock(path)
        try:
            self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            os.close(self._lock_fd)
            raise StoreError(f"Cannot open coordination store {path}: {error}") from error
        try:
            self.nodes, self.first_zxid = self._open()
            _write_owner(self._lock_fd)
        except (sqlite3.Error, OSError) as error:
            self.close()
            raise StoreError(f"Cannot read coordination store {path}: {error}") from error
        except BaseException:
            self.close()
            raise

    def _open(self) -> tuple[dict[str, Node], int]:
        run = self._database.execute
        kind, opened = run("PRAGMA application_id").fetchone()[0], run("PRAGMA user_version").fetchone()[0]
        is_new = kind == 0 and opened == 0 and run("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        if not is_new and kind != FORMAT:
            raise StoreError(f"{self.path} is not a coordination store: it is another application's SQLite database")
        # No other process uses the file, so the write-ahead log's index needs no shared memory.
        run("PRAGMA locking_mode = EXCLUSIVE")
        nodes: dict[str, Node] = {}
        if not is_new:
            nodes = {
                path: Node(data, version, czxid, mzxid, ctime_ms, mtime_ms, 0, next_sequence)
                for path, data, version, czxid, mzxid, ctime_ms, mtime_ms, next_sequence in run("SELECT * FROM nodes")
            }
            self._check(nodes)
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = FULL")
        run("BEGIN IMMEDIATE")
        if is_new:
            run(_CREATE)
            run(f"PRAGMA application_id = {FORMAT}")
        run(f"PRAGMA user_version = {opened + 1}")
        run("COMMIT")
        if is_new:
            _sync_directory(self.path.parent)
        return nodes, (opened + 1) << _COUNTER_BITS

    def commit(self, nodes: Mapping[str, Node | None]) -> None:
        """Writes nodes, and deletes the paths whose node is None, in one transaction."""
        try:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.executemany(_SAVE, _rows(nodes.items()))
            self._database.executemany(
                "DELETE FROM nodes WHERE path = ?", [(path,) for path, node in nodes.items() if node is None]
            )
            self._database.execute("COMMIT")
        except sqlite3.Error as error:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise ConnectionLoss(f"Cannot write coordination store {self.path}: {error}") from error

    def close(self) -> None:
        self._database.close()
        if self._lock_fd >= 0:
            fd, self._lock_fd = self._lock_fd, -1
            os.close(fd)


def _rows(items: Iterable[tuple[str, Node | None]]) -> list[tuple[object, ...]]:
    return [
        (
            path,
            node.data,
            node.version,
            node.czxid,
            node.mzxid,
            node.ctime_ms,
            node.mtime_ms,
            node.next_sequence,
        )
        for path, node in items
        if node is not None
    ]


def _take_lock(path: Path) -> int:
    lock_path = path.with_name(path.name + ".lock")
    try:
        fd = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StoreError(f"Cannot open coordination store {path}: {error}") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(fd, 20, 0).decode(errors="replace").strip()
        os.close(fd)
        raise StoreError(f"Coordination store {path} is in use by process {owner or 'unknown'}") from None
    except OSError as error:
        os.close(fd)
        raise StoreError(f"Cannot lock coordination store {path}: {error}") from error
    return fd


def _write_owner(fd: int) -> None:
    """Writes the id of this process to the lock file, for the error message of another process."""
    os.ftruncate(fd, 0)
    os.pwrite(fd, b"%d\n" % os.getpid(), 0)


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
