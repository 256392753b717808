import asyncio
import logging
from typing import cast

import pytest
from tests.support.net.virtual_loop import run

from headrace.broker.config.control import ControlConfig
from headrace.broker.control.controlled_shutdown import controlled_shutdown
from headrace.broker.control.controller_client import ControllerClient
from headrace.cluster.commands import BrokerInfo, UpdateMetadata
from headrace.cluster.metadata_image import MetadataImage
from headrace.common.errors import KafkaError, NotControllerError
from headrace.common.types import TopicPartition

TP = TopicPartition("t", 0)


class Controller:
    """Answers with one of the given results after the other."""

    def __init__(self, *results: set[TopicPartition] | KafkaError):
        self.results = list(results)
        self.times: list[float] = []

    async def controlled_shutdown(self) -> set[TopicPartition]:
        self.times.append(asyncio.get_running_loop().time())
        result = self.results.pop(0)
        if isinstance(result, KafkaError):
            raise result
        return result


def shut_down(controller: Controller, brokers: tuple[int, ...] = (1, 2)) -> bool:
    image = MetadataImage()
    image.apply(UpdateMetadata(1, 1, -1, [BrokerInfo(broker_id) for broker_id in brokers], []))
    config = ControlConfig.from_properties({"controlled.shutdown.retry.backoff.ms": 2000})
    return run(controlled_shutdown(1, config, image, cast(ControllerClient, controller)))


def test_repeats_until_no_partition_remains(caplog: pytest.LogCaptureFixture) -> None:
    controller = Controller(NotControllerError("failover"), {TP}, set())
    with caplog.at_level(logging.INFO):
        assert shut_down(controller)
    first, second, third = controller.times
    assert (second - first, third - second) == (2, 2)
    assert "attempt 1 of 3: the controller did not do it: failover" in caplog.text
    assert "attempt 2 of 3: no other in-sync replica can lead 1 partitions: t-0" in caplog.text
    assert "controlled shutdown succeeded" in caplog.text


def test_gives_up_after_the_last_attempt(caplog: pytest.LogCaptureFixture) -> None:
    controller = Controller({TP}, {TP}, {TP})
    assert not shut_down(controller)
    assert len(controller.times) == 3
    assert "Broker 1 stops without a controlled shutdown" in caplog.text


def test_the_last_broker_does_not_wait() -> None:
    controller = Controller({TP})
    assert not shut_down(controller, brokers=(1,))
    assert len(controller.times) == 1
