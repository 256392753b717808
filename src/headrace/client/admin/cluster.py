"""The cluster: brokers, API versions, features. Owner: the loop."""

from headrace.client.admin.base import AdminBase, operations
from headrace.client.admin.types import BrokerDescription, ClusterDescription
from headrace.client.errors import check
from headrace.common.errors import UnsupportedVersionError
from headrace.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from headrace.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


class ClusterAdmin(AdminBase):
    """The calls about the cluster."""

    async def describe_cluster(
        self,
        *,
        include_authorized_operations: bool = False,
        include_fenced_brokers: bool = False,
        timeout_ms: float | None = None,
    ) -> ClusterDescription:
        """Returns the brokers, the controller and the cluster id."""

        async def attempt() -> ClusterDescription:
            request = DescribeClusterRequest(
                include_cluster_authorized_operations=include_authorized_operations,
                include_fenced_brokers=include_fenced_brokers,
            )
            try:
                response: DescribeClusterResponse = await self._to_any(
                    request, min_version=2 if include_fenced_brokers else None
                )
            except UnsupportedVersionError:
                if include_fenced_brokers or include_authorized_operations:
                    raise
                return await self._cluster_from_metadata()
            check(response.error_code, response.error_message)
            return ClusterDescription(
                response.cluster_id,
                response.controller_id,
                tuple(
                    BrokerDescription(broker.broker_id, broker.host, broker.port, broker.rack, broker.is_fenced)
                    for broker in response.brokers
                ),
                operations(response.cluster_authorized_operations),
            )

        return await self._call_with_retries(attempt, timeout_ms, "describing the cluster")

    async def _cluster_from_metadata(self) -> ClusterDescription:
        """Describes the cluster by its metadata, for brokers before Kafka 2.8."""
        view = await self.core.metadata.update_brokers(self._timeout_ms(None))
        brokers = tuple(BrokerDescription(node.id, node.host, node.port, node.rack) for node in view.nodes.values())
        return ClusterDescription(view.cluster_id, view.controller_id, brokers)

    async def unregister_broker(self, broker_id: int, *, timeout_ms: float | None = None) -> None:
        """Removes a broker that does not run any more from a cluster with KRaft.

        With ZooKeeper, and in Headrace, a broker is registered only while it runs: UnsupportedVersionError.
        """

        async def attempt() -> None:
            response: UnregisterBrokerResponse = await self._to_any(UnregisterBrokerRequest(broker_id=broker_id))
            check(response.error_code, response.error_message)

        await self._call_with_retries(attempt, timeout_ms, f"unregistering broker {broker_id}")

    async def api_versions(self, broker_id: int | None = None, *, timeout_ms: float | None = None) -> dict[int, range]:
        """Returns the versions that a broker supports, by API key."""

        async def attempt() -> dict[int, range]:
            node_id = self.core.pool.least_loaded() if broker_id is None else broker_id
            await self.core.pool.connect(node_id)
            for link in self.core.pool.links():
                if link.node.id == node_id and link.connection is not None:
                    return {
                        key: range(min_version, max_version + 1)
                        for key, (min_version, max_version) in link.connection.versions.items()
                    }
            return {}

        return await self._call_with_retries(attempt, timeout_ms, "listing API versions")

    async def describe_features(
        self, broker_id: int | None = None, *, timeout_ms: float | None = None
    ) -> dict[str, int]:
        """Returns the finalized features of the cluster and their levels (KIP-584)."""

        async def attempt() -> dict[str, int]:
            node_id = self.core.pool.least_loaded() if broker_id is None else broker_id
            await self.core.pool.connect(node_id)
            return self.core.pool.features(node_id)

        return await self._call_with_retries(attempt, timeout_ms, "describing features")
