"""The node tree of an embedded store, in memory, with ZooKeeper's rules. Does no I/O: `prepare` computes the effect of
operations, the caller writes it to disk, and `apply` applies it.

Owned by the event loop. Only one change may be between `prepare` and `apply`.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headrace.cluster.store import (
    ANY_VERSION,
    SEQUENCE_DIGITS,
    BadVersion,
    Check,
    Create,
    Delete,
    EventKind,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    OperationResult,
    Set,
    Stat,
    StoreError,
    Watch,
    WatchEvent,
    check_path,
    parent_of,
)

ROOT = "/"


class Node(NamedTuple):
    """A node: its data and metadata."""

    data: bytes
    version: int
    czxid: int
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    ephemeral_owner: int = 0
    next_sequence: int = 0


class Change(NamedTuple):
    """The prepared effect of a list of operations."""

    zxid: int
    nodes: dict[str, Node | None]
    """New and changed nodes by path. None means a deleted node."""
    results: list[OperationResult]
    events: list[WatchEvent]


class _Overlay:
    """The tree as it will be after the operations prepared so far."""

    def __init__(self, nodes: dict[str, Node], children: dict[str, set[str]]):
        self._base_nodes = nodes
        self._base_children = children
        self.nodes: dict[str, Node | None] = {}
        self._child_count: dict[str, int] = {}

    def get(self, path: str) -> Node | None:
        return self.nodes[path] if path in self.nodes else self._base_nodes.get(path)

    def child_count(self, path: str) -> int:
        count = self._child_count.get(path)
        return len(self._base_children.get(path, ())) if count is None else count

    def put(self, path: str, node: Node) -> None:
        self.nodes[path] = node

    def add(self, path: str, parent: str, node: Node) -> None:
        self.nodes[path] = node
        self._child_count[path] = 0
        self._child_count[parent] = self.child_count(parent) + 1

    def remove(self, path: str, parent: str) -> None:
        self.nodes[path] = None
        self._child_count[parent] = self.child_count(parent) - 1

    def stat(self, path: str, node: Node) -> Stat:
        return make_stat(node, self.child_count(path))


def make_stat(node: Node, num_children: int) -> Stat:
    return Stat(node.czxid, node.mzxid, node.version, node.ctime_ms, node.mtime_ms, node.ephemeral_owner, num_children)


class Tree:
    """All nodes of a store, and the watches on them."""

    def __init__(self, nodes: dict[str, Node], zxid: int):
        """`nodes` are the persisted nodes. The first change gets `zxid` + 1."""
        self._nodes = nodes
        self._children: dict[str, set[str]] = {}
        self._zxid = zxid
        self._owned: dict[int, set[str]] = {}
        self._data_watches: dict[str, dict[tuple[int, Watch], None]] = {}
        self._child_watches: dict[str, dict[tuple[int, Watch], None]] = {}
        if ROOT not in nodes:
            nodes[ROOT] = Node(b"", 0, 0, 0, 0, 0)
        for path in nodes:
            if path != ROOT:
                parent = parent_of(path)
                if parent not in nodes:
                    raise StoreError(f"Node {path} has no parent", path)
                self._children.setdefault(parent, set()).add(path[path.rindex("/") + 1 :])

    # ---- reading

    def find(self, path: str) -> Node:
        node = self._nodes.get(path)
        if node is None:
            check_path(path)
            raise NoNode(f"Node {path} does not exist", path)
        return node

    def get(self, path: str) -> tuple[bytes, Stat]:
        node = self.find(path)
        return node.data, self._stat(path, node)

    def exists(self, path: str) -> Stat | None:
        node = self._nodes.get(path)
        if node is None:
            check_path(path)
            return None
        return self._stat(path, node)

    def children(self, path: str) -> list[str]:
        self.find(path)
        return sorted(self._children.get(path, ()))

    def _stat(self, path: str, node: Node) -> Stat:
        return make_stat(node, len(self._children.get(path, ())))

    def owned_by(self, session_id: int) -> list[str]:
        return sorted(self._owned.get(session_id, ()))

    # ---- writing

    def prepare(self, operations: Sequence[Operation], session_id: int, now_ms: int) -> Change:
        zxid = self._zxid + 1
        overlay = _Overlay(self._nodes, self._children)
        results: list[OperationResult] = []
        events: list[WatchEvent] = []
        for position, operation in enumerate(operations):
            try:
                results.append(self._prepare_one(overlay, operation, session_id, zxid, now_ms, events))
            except StoreError as error:
                error.index = position
                raise
        return Change(zxid, overlay.nodes, results, events)

    def _prepare_one(
        self,
        overlay: _Overlay,
        operation: Operation,
        session_id: int,
        zxid: int,
        now_ms: int,
        events: list[WatchEvent],
    ) -> OperationResult:
        check_path(operation.path)
        match operation:
            case Create():
                return _prepare_create(overlay, operation, session_id, zxid, now_ms, events)
            case Set(path, data, version):
                node = _find_version(overlay, path, version)
                node = node._replace(data=data, version=node.version + 1, mzxid=zxid, mtime_ms=now_ms)
                overlay.put(path, node)
                events.append(WatchEvent(EventKind.CHANGED, path))
                return overlay.stat(path, node)
            case Delete(path, version):
                _find_version(overlay, path, version)
                if path == ROOT:
                    raise StoreError("The root node cannot be deleted", path)
                if overlay.child_count(path):
                    raise NotEmpty(f"Node {path} has children", path)
                overlay.remove(path, parent_of(path))
                events.append(WatchEvent(EventKind.DELETED, path))
            case Check(path, version):
                _find_version(overlay, path, version)
        return None

    def apply(self, change: Change) -> list[tuple[int, Watch, WatchEvent]]:
        """Applies a prepared change. Returns the triggered watches, each with its session id and event."""
        self._zxid = change.zxid
        for path, node in change.nodes.items():
            old_node = self._nodes.get(path)
            if old_node is not None and old_node.ephemeral_owner:
                self._owned[old_node.ephemeral_owner].discard(path)
            if node is None:
                if old_node is not None:
                    self._unlink(path)
                continue
            self._nodes[path] = node
            if old_node is None:
                self._children.setdefault(parent_of(path), set()).add(path[path.rindex("/") + 1 :])
            if node.ephemeral_owner:
                self._owned.setdefault(node.ephemeral_owner, set()).add(path)
        return [triggered for event in change.events for triggered in self._trigger(event)]

    def _unlink(self, path: str) -> None:
        del self._nodes[path]
        self._children.pop(path, None)
        # The parent may already be deleted by the same change.
        siblings = self._children.get(parent_of(path))
        if siblings is not None:
            siblings.discard(path[path.rindex("/") + 1 :])

    # ---- watches

    def watch_data(self, path: str, session_id: int, watch: Watch) -> None:
        self._data_watches.setdefault(path, {})[session_id, watch] = None

    def watch_children(self, path: str, session_id: int, watch: Watch) -> None:
        self._child_watches.setdefault(path, {})[session_id, watch] = None

    def drop_watches(self, session_id: int) -> None:
        for watches in (self._data_watches, self._child_watches):
            for path in list(watches):
                watches[path] = {key: None for key in watches[path] if key[0] != session_id}
                if not watches[path]:
                    del watches[path]

    def _trigger(self, event: WatchEvent) -> Iterable[tuple[int, Watch, WatchEvent]]:
        watches = self._data_watches.pop(event.path, {})
        if event.kind is EventKind.DELETED:
            # A session that watches both data and children of a node gets one event for its deletion.
            watches |= self._child_watches.pop(event.path, {})
        for session_id, watch in watches:
            yield session_id, watch, event
        if event.kind is not EventKind.CHANGED:
            parent = parent_of(event.path)
            for session_id, watch in self._child_watches.pop(parent, {}):
                yield session_id, watch, WatchEvent(EventKind.CHILDREN, parent)


def _find_version(overlay: _Overlay, path: str, version: int) -> Node:
    node = overlay.get(path)
    if node is None:
        raise NoNode(f"Node {path} does not exist", path)
    if version not in (ANY_VERSION, node.version):
        raise BadVersion(f"Node {path} has version {node.version}, expected {version}", path)
    return node


def _prepare_create(
    overlay: _Overlay, operation: Create, session_id: int, zxid: int, now_ms: int, events: list[WatchEvent]
) -> str:
    path = operation.path
    if path == ROOT:
        raise NodeExists("The root node always exists", path)
    parent_path = parent_of(path)
    parent = overlay.get(parent_path)
    if parent is None:
        raise NoNode(f"Cannot create {path}: node {parent_path} does not exist", path)
    if parent.ephemeral_owner:
        raise NoChildrenForEphemerals(
            f"Cannot create {path}: node {parent_path} is ephemeral and cannot have children", path
        )
    if operation.sequential:
        path += f"{parent.next_sequence:0{SEQUENCE_DIGITS}d}"
        overlay.put(parent_path, parent._replace(next_sequence=parent.next_sequence + 1))
    if overlay.get(path) is not None:
        raise NodeExists(f"Node {path} already exists", path)
    owner = session_id if operation.ephemeral else 0
    overlay.add(path, parent_path, Node(operation.data, 0, zxid, zxid, now_ms, now_ms, owner))
    events.append(WatchEvent(EventKind.CREATED, path))
    return path
