"""PushTelemetry: a client's metrics, in OpenTelemetry's format (KIP-714).

Behavior:
- Checked in this order: instance id, subscription id, interval, compression type, size. Then the metrics are
  decompressed and decoded in a thread, with limits on their size and number.
- The broker keeps the latest metrics of each client, and serves them to Prometheus.

Version notes (0): flexible.
"""

from functools import partial

from headrace.broker.apis import api
from headrace.broker.batch_inflater import BatchInflater
from headrace.broker.dispatch import RequestContext
from headrace.broker.required_rights import requires_nothing
from headrace.broker.telemetry.client_telemetry import ClientTelemetry
from headrace.common.errors import KafkaError, UnsupportedVersionError
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse


@api(ApiKey.PUSH_TELEMETRY, 0, 0, needs=requires_nothing("Operators choose the clients that push metrics."))
async def handle(
    request: PushTelemetryRequest, context: RequestContext, *, batch_inflater: BatchInflater, telemetry: ClientTelemetry
) -> PushTelemetryResponse:
    if not telemetry.enabled:
        return PushTelemetryResponse(error_code=UnsupportedVersionError.code)
    try:
        data = bytes(request.metrics)  # the frame is valid only until the first await
        instance = telemetry.check_push(
            context.telemetry_client(request.client_instance_id),
            request.subscription_id,
            request.compression_type,
            len(data),
            terminating=request.terminating,
        )
        if data:
            points = await batch_inflater.run(partial(telemetry.decode, request.compression_type, data))
            telemetry.pushed(instance, points)
    except KafkaError as error:
        return PushTelemetryResponse(error_code=error.code)
    return PushTelemetryResponse()
