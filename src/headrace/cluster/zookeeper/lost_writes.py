"""Finds out whether a write whose response was lost has been executed.

After the connection is back, the old request is either executed or never will be: ZooKeeper executes the requests of
a session in order, and refuses those of its old connection. `sync` makes the server catch up with the leader, so the
nodes show the outcome. `before` is the zxid that the client had seen before the write. All changes of one write have
one zxid.

- A created node is recognized by its creation after `before`, its data and, if it is ephemeral, by its owner, this
  session.
  Without such a node, an ephemeral creation was not executed: then a compare-and-set in the same `multi` was somebody
  else's with the same data, such as the next controller epoch in an election that another broker has won.
- A compare-and-set is recognized by its data and the next version. If another client has changed the node since, it
  fails with BadVersion, although it may have been executed. Callers read the node again, as after any BadVersion.
- A deletion counts as executed if the node is missing, or was created again after `before`.
- A sequential node is found among the children of its parent, like another created node. If another client has
  created a sequential node with the same data meanwhile, that node may be taken for the own one: then there is one
  node less than there were writes. The nodes with numbers are notifications, so readers see no difference.
- A `multi` was executed if one of its creations or changes is recognized and none contradicts it, or, if it only
  deletes, if all its nodes are gone.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from headrace.cluster.store import (
    ANY_VERSION,
    SEQUENCE_DIGITS,
    Check,
    Create,
    Delete,
    Operation,
    OperationResult,
    Set,
    Stat,
    parent_of,
)

Node = tuple[bytes, Stat] | None
GetNode = Callable[[str], Awaitable[Node]]
GetChildren = Callable[[str], Awaitable[list[str]]]


async def find_results(
    operations: Sequence[Operation], before: int, session_id: int, get: GetNode, children: GetChildren
) -> list[OperationResult] | None:
    """Returns the results of a lost write, or None if it was not executed."""
    results: list[OperationResult] = []
    zxid: int | None = None
    for operation in operations:
        node: Node = None
        path = operation.path
        if isinstance(operation, Create) and operation.sequential:
            path, node = await _find_sequential(operation, before, session_id, get, children)
            if node is None and len(operations) == 1:
                return None
        elif not isinstance(operation, Check):
            node = await get(path)
        written = _zxid_of(operation, node, before, session_id)
        if written is not None:
            if zxid is not None and zxid != written:
                return None
            zxid = written
        elif _contradicts(operation, node, before):
            return None
        results.append(_result(operation, path, node, written))
    changes = any(isinstance(operation, Create | Set) for operation in operations)
    return results if zxid is not None or not changes else None


def _zxid_of(operation: Operation, node: Node, before: int, session_id: int) -> int | None:
    """Returns the zxid of the write if the node proves that the operation was executed."""
    if node is None or isinstance(operation, Delete | Check):
        return None
    data, stat = node
    if isinstance(operation, Create):
        if stat.czxid <= before or stat.ephemeral_owner != (session_id if operation.ephemeral else 0):
            return None
        return stat.czxid if data == operation.data else None
    if stat.mzxid <= before or data != operation.data:
        return None
    return stat.mzxid if operation.version in (ANY_VERSION, stat.version - 1) else None


def _contradicts(operation: Operation, node: Node, before: int) -> bool:
    """Returns True if the node cannot be in this state after the operation."""
    if isinstance(operation, Check):
        return False
    if isinstance(operation, Create) and operation.ephemeral:
        return True  # it would exist as long as this session; what is there belongs to another one
    if isinstance(operation, Delete):
        return node is not None and node[1].czxid <= before
    if node is None:
        return False  # deleted since
    stat = node[1]
    return stat.czxid <= before if isinstance(operation, Create) else stat.mzxid <= before


def _result(operation: Operation, path: str, node: Node, written: int | None) -> OperationResult:
    if isinstance(operation, Create):
        return path
    if not isinstance(operation, Set):
        return None
    if node is None:  # deleted since: the caller finds that out when it uses the version
        return Stat(0, 0, operation.version + 1, 0, 0, 0, 0)
    if written is not None or operation.version == ANY_VERSION:
        return node[1]
    return replace(node[1], version=operation.version + 1)


async def _find_sequential(
    operation: Create, before: int, session_id: int, get: GetNode, children: GetChildren
) -> tuple[str, Node]:
    parent = parent_of(operation.path)
    prefix = operation.path.removeprefix(parent).removeprefix("/")
    names = [
        name
        for name in await children(parent)
        if name.startswith(prefix) and len(name) == len(prefix) + SEQUENCE_DIGITS and name[len(prefix) :].isdecimal()
    ]
    for name in sorted(names, reverse=True):
        path = f"{parent.rstrip('/')}/{name}"
        node = await get(path)
        if node is None:
            continue
        if node[1].czxid <= before:
            break  # numbers and zxids increase together
        if _zxid_of(operation, node, before, session_id) is not None:
            return path, node
    return operation.path, None
