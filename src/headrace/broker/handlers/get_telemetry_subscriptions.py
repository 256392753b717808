"""GetTelemetrySubscriptions: which metrics a client should push, and how often (KIP-714).

Behavior:
- Announced only by brokers that serve metrics (`headrace.metrics.listener`), as Kafka announces it only with a plugin
  for telemetry. Others respond with UNSUPPORTED_VERSION.
- The client gets the metrics of all subscriptions that match it, and the shortest of their intervals.
- Values are cumulative, unlike Kafka's default: that is what Prometheus needs.

Version notes (0): flexible.
"""

from headrace.broker.apis import api
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import requires_nothing
from headrace.broker.telemetry.client_telemetry import ACCEPTED_COMPRESSION, ClientTelemetry
from headrace.common.errors import KafkaError, UnsupportedVersionError
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)


@api(
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    0,
    0,
    needs=requires_nothing("Operators choose the clients that push metrics."),
)
def handle(
    request: GetTelemetrySubscriptionsRequest, context: RequestContext, *, telemetry: ClientTelemetry
) -> GetTelemetrySubscriptionsResponse:
    if not telemetry.enabled:
        return GetTelemetrySubscriptionsResponse(error_code=UnsupportedVersionError.code)
    try:
        instance = telemetry.subscribe(context.telemetry_client(request.client_instance_id))
    except KafkaError as error:
        return GetTelemetrySubscriptionsResponse(error_code=error.code, client_instance_id=request.client_instance_id)
    subscription = instance.subscription
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance.client.client_instance_id,
        subscription_id=subscription.id,
        accepted_compression_types=[codec.value for codec in ACCEPTED_COMPRESSION],
        push_interval_ms=subscription.interval_ms,
        telemetry_max_bytes=telemetry.max_bytes,
        delta_temporality=False,
        requested_metrics=list(subscription.metrics),
    )
