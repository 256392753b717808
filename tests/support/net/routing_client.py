"""WireClients to the brokers of a cluster: each request is sent to the broker that is responsible for it."""

from __future__ import annotations

from typing import Any

from tests.support.net.wire_calls import coordinator_address, first_address, leader_address
from tests.support.net.wire_client import WireClient

from headrace.protocol import ApiKey, Message

_TO_GROUP_COORDINATOR = {
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.OFFSET_DELETE,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.LIST_GROUPS,
    ApiKey.DELETE_GROUPS,
}
_TO_TRANSACTION_COORDINATOR = {
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.LIST_TRANSACTIONS,
}
_TO_LEADER = {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.WRITE_TXN_MARKERS}


class RoutingClient:
    """Requires that the internal topics have one partition, so that there is one coordinator of each kind, and that
    *topic* is the only topic of requests to leaders and all its partitions have the same leader. Leaders stay."""

    def __init__(self, bootstrap: str, topic: str, timeout: float = 60.0):
        self.group_coordinator = coordinator_address(bootstrap, 0)
        transaction_coordinator = coordinator_address(bootstrap, 1)
        leader = leader_address(bootstrap, topic)
        self._any = first_address(bootstrap)
        self._addresses = {
            **dict.fromkeys(_TO_GROUP_COORDINATOR, self.group_coordinator),
            **dict.fromkeys(_TO_TRANSACTION_COORDINATOR, transaction_coordinator),
            **dict.fromkeys(_TO_LEADER, leader),
        }
        self._clients = {
            address: WireClient(address, timeout=timeout) for address in {self._any, *self._addresses.values()}
        }

    def __enter__(self) -> RoutingClient:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for client in self._clients.values():
            client.close()

    def call(self, request: Message, version: int | None = None) -> Any:
        """Sends a request, by default in the newest version, and returns its response."""
        key = ApiKey(type(request).__api_key__)
        return self._clients[self._addresses.get(key, self._any)].call(request, version)
