"""UpdateMetadata: the controller tells this broker the live brokers and the state of partitions.

Behavior: as of LeaderAndIsr. The request has all live brokers, but only partitions that have changed, unless its type
(version 8) is FULL.

Version notes (0 to 8): 1 has several endpoints per broker, 2 racks, 3 listener names, 4 offline replicas, 5 the broker
epoch (KIP-380), 6 is flexible, 7 has topic ids (KIP-516), 8 controllers of KRaft, which are not supported.
"""

from headrace.broker.apis import DEFERRED, HandlerResult, api
from headrace.broker.control import wire
from headrace.broker.control.inbox import CommandInbox
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import requires_cluster
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.update_metadata import UpdateMetadataRequest
from headrace.security.acls import Operation


@api(ApiKey.UPDATE_METADATA, 0, 8, needs=requires_cluster(Operation.CLUSTER_ACTION))
def handle(request: UpdateMetadataRequest, context: RequestContext, *, inbox: CommandInbox) -> HandlerResult:
    command = wire.decode_update_metadata(request, context.api_version)
    inbox.submit(command, lambda result: context.reply(wire.update_metadata_response(result)))
    return DEFERRED
