"""The coordination store: a small tree of nodes that survives every broker, with ZooKeeper's semantics.

A node has data, a version that counts its changes, and children. Every change of the tree has a number, the zxid,
which only grows. A change is made under a condition (a version, or that a node is there) and is on disk when the call
returns.

An ephemeral node belongs to the session that made it and vanishes with it: when the session is closed, or when its
owner is gone. A sequential node gets a number behind its name that no other child of its parent has had.

Watches are one-shot and set by the read itself, so nothing can happen unseen between the two:

    data, stat = await store.get("/controller", watch=self._controller_changed)

The watch is called once, on the event loop, after the first change that makes what was read untrue. It must not block;
who wants to go on watching reads again. A read that fails sets no watch, except `exists` of a node that is not there.
When a session is lost its watches are dropped, and the session listeners are called.

`embedded.EmbeddedStore` is the implementation for one process.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias

from headrace.common.errors import HeadraceError

ANY_VERSION = -1
SEQUENCE_DIGITS = 10


class StoreError(HeadraceError):
    """A call that the store refused. `path` is the node it was about; `index` is the operation's place in a `multi`."""

    def __init__(self, message: str, path: str = "", index: int = 0):
        super().__init__(message)
        self.path = path
        self.index = index


class NoNode(StoreError):
    """The node, or the parent of one to be made, is not there."""


class NodeExists(StoreError):
    """The node to be made is there already."""


class BadVersion(StoreError):
    """The node has changed since it was read."""


class NotEmpty(StoreError):
    """The node to be deleted has children."""


class NoChildrenForEphemerals(StoreError):
    """An ephemeral node cannot have children."""


class SessionExpired(StoreError):
    """The session is over: it was closed, or the store gave it up. Its ephemeral nodes are gone."""


class ConnectionLoss(StoreError):
    """The store did not answer; whether a change was made is not known."""


@dataclass(frozen=True, slots=True)
class Stat:
    czxid: int
    """The change that made the node."""
    mzxid: int
    """The change that wrote its data last."""
    version: int
    ctime_ms: int
    mtime_ms: int
    ephemeral_owner: int
    """The session it belongs to; 0 if it is persistent."""
    num_children: int


class EventKind(Enum):
    CREATED = "created"
    DELETED = "deleted"
    CHANGED = "changed"
    CHILDREN = "children"


@dataclass(frozen=True, slots=True)
class WatchEvent:
    kind: EventKind
    path: str


class SessionState(Enum):
    LOST = "lost"
    """Ephemeral nodes and watches of the session are gone."""
    ESTABLISHED = "established"
    """A new session has begun; register and watch again."""


Watch: TypeAlias = Callable[[WatchEvent], None]
SessionListener: TypeAlias = Callable[[SessionState], None]


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Changes nothing; fails if the node is not there, or not in this version."""

    path: str
    version: int = ANY_VERSION


Operation: TypeAlias = Create | Set | Delete | Check
OperationResult: TypeAlias = str | Stat | None
"""The path that a Create made, the Stat after a Set, None otherwise."""


class CoordinationStore(Protocol):
    @property
    def session_id(self) -> int: ...

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        """Makes a node whose parent is there. Returns its path, which for a sequential node ends in its number."""
        ...

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """The watch fires when the data is changed or the node deleted."""
        ...

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """The watch fires when the node is made, changed or deleted."""
        ...

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """The names of a node's children, sorted. The watch fires when one comes or goes, or the node is deleted."""
        ...

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Replaces the data if the node still has this version."""
        ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Removes a node that has no children, if it still has this version."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """Does all operations in order, or none. The error raised is that of the first that cannot be done."""
        ...

    def add_session_listener(self, listener: SessionListener) -> None: ...

    async def close(self) -> None:
        """Ends the session: its ephemeral nodes vanish at once."""
        ...


def parent_of(path: str) -> str:
    return path[: path.rindex("/")] or "/"


def check_path(path: str) -> None:
    """ZooKeeper's rules of names: absolute, no empty part, no `.` or `..`, no control characters."""
    parts = path.split("/")
    if path == "/":
        return
    if parts[0] or len(parts) < 2:
        raise StoreError(f"the path {path!r} does not begin with '/'", path)
    for part in parts[1:]:
        if part in ("", ".", "..") or not part.isprintable():
            raise StoreError(f"the path {path!r} has a part that is no name: {part!r}", path)


async def delete_tree(store: CoordinationStore, path: str) -> None:
    """Deletes a node with all below it, the leaves first; fine if it is not there."""
    try:
        names = await store.children(path)
    except NoNode:
        return
    for name in names:
        await delete_tree(store, f"{path}/{name}")
    try:
        await store.delete(path)
    except NoNode:
        return
    except NotEmpty:
        await delete_tree(store, path)


async def tree_deletions(store: CoordinationStore, path: str) -> list[Operation]:
    """What deletes a node with all that is below it now, in one `multi`; empty if it is not there."""
    try:
        names = await store.children(path)
    except NoNode:
        return []
    operations: list[Operation] = []
    for name in names:
        operations += await tree_deletions(store, f"{path}/{name}")
    return [*operations, Delete(path)]
