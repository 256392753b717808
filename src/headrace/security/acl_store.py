"""Access control lists in the coordination store, and the watch that keeps the authorizer up to date.

A change reads the ACLs of one pattern, writes the new ones if nobody else has changed them meanwhile, and tries again
otherwise: two brokers that remove different ACLs of a topic at the same time remove both, and no other
(CVE-2024-27309). The same transaction writes a notification. Every broker watches the notifications, of Headrace and of
Apache Kafka, and reads the ACLs of the pattern.

- `start` sets the watches first and then reads all ACLs, so that no change is missed. A new session does both again.
- The authorizer has a change when `alter` returns.
- If the ACLs of a pattern cannot be read, the authorizer denies everything that the pattern matches.

Owned by the broker's loop. A lock keeps an old read from being applied after a newer write.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable

from headrace.cluster.bulk_reads import read_many
from headrace.cluster.change_notifications import ChangeNotifications
from headrace.cluster.store import (
    BadVersion,
    CoordinationStore,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Operation,
    Set,
)
from headrace.cluster.znodes import DamagedNode
from headrace.common.clock import Clock
from headrace.security import acl_nodes
from headrace.security.acl_authorizer import AclAuthorizer
from headrace.security.acls import AclEntry, PatternType, ResourcePattern

_logger = logging.getLogger(__name__)

EntryChange = Callable[[frozenset[AclEntry] | None], Iterable[AclEntry]]
"""Maps the entries of a pattern to the new ones. Gets None if the stored entries cannot be read."""


class AclStore:
    """Reads and writes ACLs, and passes those of all brokers to the authorizer."""

    def __init__(self, store: CoordinationStore, clock: Clock, authorizer: AclAuthorizer):
        self._store = store
        self._authorizer = authorizer
        self._lock = asyncio.Lock()
        self._notifications = ChangeNotifications(
            store, clock, acl_nodes.CHANGE_PATHS.values(), self._read_all, self._process_notification, "the ACLs"
        )

    # ---- following the store

    async def start(self) -> None:
        """Reads all ACLs. Then they follow the store."""
        for path in acl_nodes.PERSISTENT_PATHS:
            if await self._store.exists(path) is None:
                with contextlib.suppress(NodeExists):
                    await self._store.create(path)
        await self._notifications.start()

    async def stop(self) -> None:
        await self._notifications.stop()

    def restart_watch(self) -> None:
        """Reads all ACLs and sets the watches again. Call it after the session with the store was lost."""
        self._notifications.restart_watch()

    async def _read_all(self) -> None:
        async with self._lock:
            stored = [pattern for pattern_type in acl_nodes.ACL_PATHS for pattern in await self._patterns(pattern_type)]
            found = await read_many(stored, self._read)
            for pattern in set(self._authorizer.patterns()) - found.keys():
                self._authorizer.set_entries(pattern, ())
            for pattern, (entries, _) in found.items():
                self._apply(pattern, entries)

    async def _patterns(self, pattern_type: PatternType) -> list[ResourcePattern]:
        """Returns the patterns with ACLs in the store."""
        root = acl_nodes.ACL_PATHS[pattern_type]
        patterns: list[ResourcePattern] = []
        for title in await self._store.children(root):
            resource_type = acl_nodes.find_resource_type(title)
            if resource_type is None:
                _logger.warning("The ACLs in %s/%s have no effect: unknown type of resource", root, title)
                continue
            names = await self._store.children(f"{root}/{title}")
            patterns += (ResourcePattern(resource_type, name, pattern_type) for name in names)
        return patterns

    async def _process_notification(self, path: str, data: bytes) -> None:
        try:
            pattern = acl_nodes.decode_change(path, data)
        except DamagedNode as error:
            _logger.error("Reading all ACLs again, because a notification of a change is damaged: %s", error)
            self.restart_watch()
            return
        async with self._lock:
            entries, _ = await self._read(pattern)
            self._apply(pattern, entries)

    async def _read(self, pattern: ResourcePattern) -> tuple[frozenset[AclEntry] | None, int | None]:
        """Returns the entries of a pattern and their version. The entries are None if they cannot be read, the version
        is None if there are none."""
        path = acl_nodes.acl_path(pattern)
        try:
            data, stat = await self._store.get(path)
        except NoNode:
            return frozenset(), None
        try:
            return acl_nodes.decode_acls(path, data), stat.version
        except DamagedNode as error:
            _logger.error(
                "Denying everything on %s to everybody but super users, because its ACLs cannot be read. Delete all of "
                "its ACLs and create them again: %s",
                pattern,
                error,
            )
            return None, stat.version

    def _apply(self, pattern: ResourcePattern, entries: frozenset[AclEntry] | None) -> None:
        if entries is None:
            self._authorizer.set_damaged(pattern)
        elif entries != self._authorizer.entries(pattern) or not entries:
            self._authorizer.set_entries(pattern, entries)

    # ---- changing

    async def alter(self, pattern: ResourcePattern, change: EntryChange) -> None:
        """Calls `change` with the stored entries of a pattern and writes its result. Calls it again if somebody else
        changed them meanwhile. If `change` raises, nothing is written."""
        async with self._lock:
            while True:
                before, version = await self._read(pattern)
                after = frozenset(change(before))
                if after == before:
                    break
                write = _write(pattern, after, version)
                if write is None:
                    break
                notification = Create(
                    f"{acl_nodes.CHANGE_PATHS[pattern.pattern_type]}/{acl_nodes.CHANGE_PREFIX}",
                    acl_nodes.encode_change(pattern),
                    sequential=True,
                )
                try:
                    await self._store.multi([write, notification])
                except (BadVersion, NodeExists, NoNode) as error:
                    if error.index != 0 or (isinstance(error, NoNode) and isinstance(write, Create)):
                        raise
                    continue
                _logger.info("Changed the ACLs of %s: %d entries", pattern, len(after))
                break
            self._apply(pattern, after)


def _write(pattern: ResourcePattern, entries: frozenset[AclEntry], version: int | None) -> Operation | None:
    """Returns the operation that replaces a pattern's entries, whose node has this version."""
    path = acl_nodes.acl_path(pattern)
    if not entries:
        return None if version is None else Delete(path, version)
    data = acl_nodes.encode_acls(entries)
    return Create(path, data) if version is None else Set(path, data, version)
