"""Delegation tokens in the coordination store, and in the memory of each broker that follows it.

A change reads the token, writes it if nobody else has changed it meanwhile, and tries again otherwise. The same
transaction writes a notification, which brokers of Headrace and Apache Kafka follow.

- A token can be used on this broker when `create` returns, on others a moment later.
- The SCRAM credentials of a token are derived from its secret, which takes milliseconds: in a thread, once per token.
- A token whose node cannot be read does not exist for this broker.

Owned by the broker's loop. A lock keeps an old read from being applied after a newer write.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Protocol

from headrace.cluster.bulk_reads import read_many
from headrace.cluster.change_notifications import ChangeNotifications
from headrace.cluster.store import BadVersion, CoordinationStore, Create, Delete, NodeExists, NoNode, Operation, Set
from headrace.cluster.znodes import DamagedNode
from headrace.common.background import RunInThread
from headrace.common.clock import Clock
from headrace.security import delegation_tokens as nodes
from headrace.security.credentials import ScramCredential, ScramMechanism, TokenCredential
from headrace.security.delegation_tokens import DelegationToken, token_hmac, token_password

_logger = logging.getLogger(__name__)

TokenChange = Callable[[DelegationToken], DelegationToken | None]
"""Maps a stored token to the new one; None deletes it."""
_Credentials = Mapping[str, ScramCredential]


class TokenCredentials(Protocol):
    """Where mechanisms look up the credentials of tokens."""

    def set_token(self, token_id: str, credentials: Mapping[str, TokenCredential]) -> None: ...

    def remove_token(self, token_id: str) -> None: ...


class TokenStore:
    """All tokens of the cluster."""

    def __init__(
        self,
        store: CoordinationStore,
        clock: Clock,
        secret_key: str,
        credentials: TokenCredentials,
        mechanisms: Iterable[ScramMechanism],
        run_in_thread: RunInThread,
    ):
        """`mechanisms` are those with which clients of this broker may log in."""
        self._store = store
        self._secret_key = secret_key
        self._credentials = credentials
        self._mechanisms = tuple(mechanisms)
        self._run_in_thread = run_in_thread
        self._tokens: dict[str, DelegationToken] = {}
        self._ids: dict[bytes, str] = {}
        """Token ids by the HMAC."""
        self._derived: dict[str, _Credentials] = {}
        """SCRAM credentials by token id and mechanism."""
        self._lock = asyncio.Lock()
        self._notifications = ChangeNotifications(
            store, clock, [nodes.TOKEN_CHANGES], self._read_all, self._process_notification, "the delegation tokens"
        )

    # ---- reading

    def all(self) -> list[DelegationToken]:
        return list(self._tokens.values())

    def find(self, hmac: bytes) -> DelegationToken | None:
        """Returns the token with this HMAC."""
        token_id = self._ids.get(hmac)
        return None if token_id is None else self._tokens[token_id]

    def hmac_of(self, token: DelegationToken) -> bytes:
        return token_hmac(self._secret_key, token.id)

    # ---- following the store

    async def start(self) -> None:
        """Reads all tokens. Then they follow the store."""
        for path in nodes.PERSISTENT_PATHS:
            if await self._store.exists(path) is None:
                with contextlib.suppress(NodeExists):
                    await self._store.create(path)
        await self._notifications.start()

    async def stop(self) -> None:
        await self._notifications.stop()

    def restart_watch(self) -> None:
        """Reads all tokens again. Call it after the session with the store was lost."""
        self._notifications.restart_watch()

    async def _read_all(self) -> None:
        async with self._lock:
            found = await read_many(await self._store.children(nodes.TOKENS), self._read)
            tokens = {token_id: read[0] for token_id, read in found.items() if read is not None}
            for token_id in self._tokens.keys() - tokens.keys():
                self._remove(token_id)
            await self._derive(tokens.keys() - self._derived.keys())
            for token in tokens.values():
                self._apply(token)

    async def _process_notification(self, _: str, data: bytes) -> None:
        token_id = data.decode(errors="replace")
        async with self._lock:
            read = await self._read(token_id)
            if read is None:
                self._remove(token_id)
                return
            await self._derive({token_id} - self._derived.keys())
            self._apply(read[0])

    async def _read(self, token_id: str) -> tuple[DelegationToken, int] | None:
        """Returns a token and the version of its node; None if there is none, or if it cannot be read."""
        path = nodes.token_path(token_id)
        try:
            data, stat = await self._store.get(path)
            return nodes.decode_token(path, data), stat.version
        except NoNode:
            return None
        except DamagedNode as error:
            _logger.error("Nobody can log in with the delegation token %s: %s", token_id, error)
            return None

    async def _derive(self, token_ids: Iterable[str]) -> None:
        new = sorted(token_ids)
        if new:
            self._derived |= await self._run_in_thread(partial(_derive, self._secret_key, new, self._mechanisms))

    def _apply(self, token: DelegationToken) -> None:
        self._tokens[token.id] = token
        self._ids[self.hmac_of(token)] = token.id
        credentials = self._derived[token.id]
        self._credentials.set_token(
            token.id,
            {
                name: TokenCredential(credential, token.owner, token.expires_at_ms)
                for name, credential in credentials.items()
            },
        )

    def _remove(self, token_id: str) -> None:
        self._credentials.remove_token(token_id)
        self._derived.pop(token_id, None)
        token = self._tokens.pop(token_id, None)
        if token is not None:
            del self._ids[self.hmac_of(token)]

    # ---- changing

    async def create(self, token: DelegationToken) -> None:
        """Stores a new token."""
        async with self._lock:
            await self._derive([token.id])
            try:
                await self._write(token.id, Create(nodes.token_path(token.id), nodes.encode_token(token)))
            except BaseException:
                self._derived.pop(token.id, None)
                raise
            self._apply(token)

    async def alter(self, token_id: str, change: TokenChange) -> DelegationToken | None:
        """Calls `change` with the stored token, writes its result and returns it. Calls it again if somebody else
        changed the token meanwhile. Returns None if the token is gone. If `change` raises, nothing is written."""
        async with self._lock:
            while True:
                read = await self._read(token_id)
                if read is None:
                    self._remove(token_id)
                    return None
                before, version = read
                after = change(before)
                path = nodes.token_path(token_id)
                write = Delete(path, version) if after is None else Set(path, nodes.encode_token(after), version)
                try:
                    if after != before:
                        await self._write(token_id, write)
                except (BadVersion, NoNode) as error:
                    if error.index != 0:
                        raise
                    continue
                if after is None:
                    self._remove(token_id)
                else:
                    await self._derive({token_id} - self._derived.keys())
                    self._apply(after)
                return after

    async def _write(self, token_id: str, operation: Operation) -> None:
        notification = Create(f"{nodes.TOKEN_CHANGES}/{nodes.CHANGE_PREFIX}", token_id.encode(), sequential=True)
        await self._store.multi([operation, notification])


def _derive(
    secret_key: str, token_ids: Iterable[str], mechanisms: Iterable[ScramMechanism]
) -> dict[str, dict[str, ScramCredential]]:
    """Derives the SCRAM credentials of tokens. Slow."""
    return {
        token_id: {
            mechanism.name: ScramCredential.from_password(
                mechanism, token_password(token_hmac(secret_key, token_id)), mechanism.min_iterations
            )
            for mechanism in mechanisms
        }
        for token_id in token_ids
    }
