"""The interface of the coordination store: a small, durable tree of nodes with ZooKeeper's semantics.

A node has data, a version that counts its changes, and children. Every change of the tree has an increasing number, the
zxid. A change has a condition (a version, or the existence of a node) and is on disk when the call returns.

An ephemeral node belongs to the session that created it and is deleted with it: when the session is closed or expires.
A sequential node gets a number appended to its name that is unique among the children of its parent.

Watches are one-shot and are set by the read itself, so no change between read and watch can be missed:

    data, stat = await store.get("/controller", watch=self._on_controller_node_event)

The watch is called once, on the event loop, after the first change that invalidates the read. It must not block. To
keep watching, read again. A read that fails sets no watch, except `exists` of a missing node. When a session expires
its watches are dropped and the session listeners are called.

`embedded_store.EmbeddedStore` is the implementation for one process.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias

from headrace.cluster.bulk_reads import read_many
from headrace.common.errors import HeadraceError

ANY_VERSION = -1
SEQUENCE_DIGITS = 10


class StoreError(HeadraceError):
    """A failed call. `path` is the node it concerns, `index` the position of the failed operation in a `multi`."""

    def __init__(self, message: str, path: str = "", index: int = 0):
        super().__init__(message)
        self.path = path
        self.index = index


class NoNode(StoreError):
    """The node, or the parent of a node to create, does not exist."""


class NodeExists(StoreError):
    """The node to create already exists."""


class BadVersion(StoreError):
    """The node was changed since it was read."""


class NotEmpty(StoreError):
    """The node to delete has children."""


class NoChildrenForEphemerals(StoreError):
    """An ephemeral node cannot have children."""


class SessionExpired(StoreError):
    """The session was closed or has expired. Its ephemeral nodes are deleted."""


class ConnectionLoss(StoreError):
    """The store did not respond. The change may or may not have been made."""


@dataclass(frozen=True, slots=True)
class Stat:
    """The metadata of a node."""

    czxid: int
    """The zxid of the node's creation."""
    mzxid: int
    """The zxid of the last write of its data."""
    version: int
    ctime_ms: int
    mtime_ms: int
    ephemeral_owner: int
    """The id of the owning session, or 0 if the node is persistent."""
    num_children: int


class EventKind(Enum):
    """The kind of change that triggered a watch."""

    CREATED = "created"
    DELETED = "deleted"
    CHANGED = "changed"
    CHILDREN = "children"


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """The argument of a watch: the kind of change and the node."""

    kind: EventKind
    path: str


class SessionState(Enum):
    """The argument of a session listener."""

    LOST = "lost"
    """The session expired: its ephemeral nodes and watches are deleted."""
    ESTABLISHED = "established"
    """A new session started: register again and set watches again."""


Watch: TypeAlias = Callable[[WatchEvent], None]
SessionListener: TypeAlias = Callable[[SessionState], None]


@dataclass(frozen=True, slots=True)
class Create:
    """Creates a node."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """Replaces a node's data, if the node has this version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes a node without children, if the node has this version."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Changes nothing. Fails if the node does not exist or has another version."""

    path: str
    version: int = ANY_VERSION


Operation: TypeAlias = Create | Set | Delete | Check
OperationResult: TypeAlias = str | Stat | None
"""The path of a created node, the Stat after a Set, None otherwise."""


class CoordinationStore(Protocol):
    """A session with the coordination store."""

    @property
    def session_id(self) -> int: ...

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        """Creates a node under an existing parent. Returns its path, which ends in the number of a sequential node."""
        ...

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """Returns data and metadata. The watch triggers when the data is changed or the node is deleted."""
        ...

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Returns None if there is no such node. The watch triggers when it is created, changed or deleted."""
        ...

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Returns the names of the children, sorted. The watch triggers when a child is created or deleted, or when
        the node is deleted."""
        ...

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Replaces the data if the node has this version."""
        ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Deletes a node without children, if it has this version."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """Executes all operations in order, or none. Raises the error of the first operation that fails."""
        ...

    def add_session_listener(self, listener: SessionListener) -> None: ...

    async def close(self) -> None:
        """Closes the session: its ephemeral nodes are deleted at once."""
        ...


def parent_of(path: str) -> str:
    return path[: path.rindex("/")] or "/"


def check_path(path: str) -> None:
    """Checks ZooKeeper's rules for paths: absolute, no empty part, no `.` or `..`, no control characters."""
    parts = path.split("/")
    if path == "/":
        return
    if parts[0] or len(parts) < 2:
        raise StoreError(f"Path {path!r} must start with '/'", path)
    for part in parts[1:]:
        if part in ("", ".", "..") or not part.isprintable():
            raise StoreError(f"Path {path!r} has an invalid part: {part!r}", path)


async def delete_tree(store: CoordinationStore, path: str) -> None:
    """Deletes a node and all its descendants, leaves first. Does nothing if it does not exist."""
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
    """Returns the operations that delete a node and its current descendants, or none if it does not exist."""
    try:
        names = await store.children(path)
    except NoNode:
        return []
    subtrees = await read_many(names, lambda name: tree_deletions(store, f"{path}/{name}"))
    return [*(operation for operations in subtrees.values() for operation in operations), Delete(path)]
