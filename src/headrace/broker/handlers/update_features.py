"""UpdateFeatures: no feature can be updated, as in Kafka 3.9 with ZooKeeper, whose brokers support none.

Behavior:
- Each feature gets INVALID_REQUEST. `cluster.features` says which level of `transaction.version` a cluster has.

Other APIs of the Raft quorum (DescribeQuorum, AddRaftVoter, UnregisterBroker and so on) are not announced. A request
of such an API closes the connection, as with ZooKeeper.

Version notes (0 to 1): 1 has upgrade types and `validate_only` (KIP-778).
"""

from headrace.broker.apis import api
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import denied, on_cluster, requires
from headrace.broker.rights import is_allowed_on_cluster
from headrace.common.errors import InvalidRequestError, message_of
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from headrace.security.acls import Operation, ResourceType

_NOT_SUPPORTED = "Could not apply finalized feature update because the provided feature is not supported."
_NO_UPDATES = "Can not provide empty feature updates in the request."


@api(ApiKey.UPDATE_FEATURES, 0, 1, needs=requires(on_cluster(Operation.ALTER)))
def handle(request: UpdateFeaturesRequest, context: RequestContext) -> UpdateFeaturesResponse:
    if not is_allowed_on_cluster(context, Operation.ALTER):
        error = denied(ResourceType.CLUSTER)
        return UpdateFeaturesResponse(error_code=error.code, error_message=message_of(error))
    if not request.feature_updates:
        return UpdateFeaturesResponse(error_code=InvalidRequestError.code, error_message=_NO_UPDATES)
    return UpdateFeaturesResponse(
        results=[
            UpdatableFeatureResult(
                feature=update.feature, error_code=InvalidRequestError.code, error_message=_NOT_SUPPORTED
            )
            for update in request.feature_updates
        ]
    )
