"""The files that `storage` keeps open: segment files and mapped indexes, at most half of the process's limit.

A file opens at its first use. If too many are open, one that has not been used for a while closes; its next use opens
it again, so a broker can have many more partitions than file descriptors. Closing only drops the owner's reference: a
fetch response, a flush or a compaction that uses the file keeps it open until it is done (see `files.DataFile`).

Threads: the owner of a log opens files, and so do the threads that load logs and the compaction.
"""

import errno
import resource
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")

TOO_MANY_OPEN_FILES = (errno.EMFILE, errno.ENFILE)
"""Too many open files: the operation had no effect and may be retried."""
_LEAST_FILES = 16
_MOST_FILES = 1_000_000


def max_open_files() -> int | None:
    """Returns how many files the process may have open; None without a limit."""
    soft_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if soft_limit == resource.RLIM_INFINITY else soft_limit


class FileOwner(Protocol):
    """An object that keeps a file open between two uses."""

    recently_used: bool
    """Set at each use. Cleared when another file needs its place: a file that stays unused until the next time closes.
    """

    def close_idle_file(self) -> None:
        """Drops the reference to the file. The next use opens it again."""


class OpenFiles:
    """The owners of open files, in the order in which they opened them or got a second chance."""

    def __init__(self, max_files: int | None = None):
        """By default, half of the files that the process may open; connections and short-lived files use the rest."""
        if max_files is None:
            limit = max_open_files()
            max_files = max(_LEAST_FILES, limit // 2) if limit is not None else _MOST_FILES
        self.max_files = max_files
        self._owners: OrderedDict[FileOwner, None] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._owners)

    def open(self, owner: FileOwner, open_file: Callable[[], T]) -> T:
        """Opens a file. If the process has no file descriptor left, closes idle files and tries once more."""
        try:
            opened = open_file()
        except OSError as error:
            if error.errno not in TOO_MANY_OPEN_FILES or not self.close_idle():
                raise
            opened = open_file()
        with self._lock:
            self._owners[owner] = None
            self._close(len(self._owners) - self.max_files)
        return opened

    def closed(self, owner: FileOwner) -> None:
        """Notes that the owner itself has dropped its file."""
        with self._lock:
            self._owners.pop(owner, None)

    def close_idle(self) -> int:
        """Closes a quarter of the files, because file descriptors have run out. Returns how many."""
        with self._lock:
            return self._close((len(self._owners) + 3) // 4)

    def _close(self, count: int) -> int:
        closed = 0
        while closed < count:
            owner, _ = self._owners.popitem(last=False)
            if owner.recently_used:
                owner.recently_used = False
                self._owners[owner] = None
            else:
                owner.close_idle_file()
                closed += 1
        return closed
