"""The controlled shutdown of this broker: the controller moves its leaderships before the broker stops (KIP-49).

It is repeated while the controller is not reachable, or partitions remain that no other in-sync replica can lead, at
most `controlled.shutdown.max.retries` times. Without another live broker there is nothing to wait for.
"""

import asyncio
import logging

from headrace.broker.config.control import ControlConfig
from headrace.broker.control.controller_client import ControllerClient
from headrace.cluster.metadata_image import MetadataImage
from headrace.common.errors import KafkaError

_logger = logging.getLogger(__name__)

_MAX_LOGGED_PARTITIONS = 10


async def controlled_shutdown(
    node_id: int, config: ControlConfig, image: MetadataImage, controller: ControllerClient
) -> bool:
    """Moves the leaderships away. Returns False if the broker still leads replicated partitions, or may do so."""
    for attempt in range(1, config.controlled_shutdown_max_retries + 1):
        try:
            remaining = await controller.controlled_shutdown()
        except KafkaError as error:
            problem = f"the controller did not do it: {error}"
        else:
            if not remaining:
                _logger.info("Broker %d: controlled shutdown succeeded, other brokers have its leaderships", node_id)
                return True
            names = ", ".join(map(str, sorted(remaining)[:_MAX_LOGGED_PARTITIONS]))
            more = " ..." if len(remaining) > _MAX_LOGGED_PARTITIONS else ""
            problem = f"no other in-sync replica can lead {len(remaining)} partitions: {names}{more}"
        if not any(broker_id != node_id for broker_id in image.brokers):
            _logger.info("Broker %d stops as the last broker of its cluster", node_id)
            return False
        _logger.warning(
            "Broker %d: controlled shutdown, attempt %d of %d: %s",
            node_id,
            attempt,
            config.controlled_shutdown_max_retries,
            problem,
        )
        if attempt < config.controlled_shutdown_max_retries:
            await asyncio.sleep(config.controlled_shutdown_retry_backoff_ms / 1000)
    _logger.warning(
        "Broker %d stops without a controlled shutdown: its partitions have no leader until the controller notices it",
        node_id,
    )
    return False
