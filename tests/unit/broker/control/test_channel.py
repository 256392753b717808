"""The controller's channel to fake brokers, in virtual time."""

import asyncio
import logging
import random
from typing import Any, cast

import pytest
from tests.support.client.fake_brokers import FakeBroker, FakeNetwork
from tests.support.net.virtual_loop import run

from headrace.broker.config.inter_broker_protocol import InterBrokerProtocol
from headrace.broker.control.channel import ControllerChannel
from headrace.broker.control.inbox import CommandInbox
from headrace.broker.inter_broker_client import InterBrokerClient
from headrace.cluster.commands import (
    BrokerEndpoint,
    BrokerInfo,
    Command,
    CommandResult,
    LeaderAndIsr,
    PartitionState,
    UpdateMetadata,
)
from headrace.common.ids import ZERO_UUID
from headrace.common.types import TopicPartition
from headrace.protocol import ApiKey
from headrace.protocol.messages.leader_and_isr import LeaderAndIsrResponse
from headrace.protocol.messages.update_metadata import UpdateMetadataResponse
from headrace.testing.clock import ManualClock


def metadata(number: int) -> UpdateMetadata:
    return UpdateMetadata(0, number, -1, [], [])


class Inbox:
    def __init__(self) -> None:
        self.commands: list[Command] = []

    def submit(self, command: Command, done: Any) -> None:
        self.commands.append(command)
        done(CommandResult())


class Lab:
    """Controller 0, and the brokers 1 and 2."""

    def __init__(self, version: str = "3.9") -> None:
        self.network = FakeNetwork()
        self.brokers = {number: self.network.add(number) for number in (1, 2)}
        for broker in self.brokers.values():
            broker.versions = {4: (0, 7), 5: (0, 4), 6: (0, 8)}
            broker.announces_all = True
            broker.on(ApiKey.UPDATE_METADATA, lambda _: UpdateMetadataResponse())
            broker.on(ApiKey.LEADER_AND_ISR, lambda _: LeaderAndIsrResponse())
        self.inbox = Inbox()
        client = InterBrokerClient(0, "INSIDE", dialer=self.network, random=random.Random(1))
        self.channel = ControllerChannel(
            0, cast(CommandInbox, self.inbox), client, InterBrokerProtocol.parse(version), ManualClock(), 1000
        )
        self.answers: list[tuple[int, int, int]] = []
        self.channel.add_broker(BrokerInfo(0, (BrokerEndpoint("INSIDE", "nowhere", 1),)))
        for broker in self.brokers.values():
            self.channel.add_broker(self.info(broker))

    def info(self, broker: FakeBroker, epoch: int = 1) -> BrokerInfo:
        return BrokerInfo(broker.id, (BrokerEndpoint("INSIDE", *broker.address),), epoch=epoch)

    def send(self, broker_id: int, number: int) -> None:
        self.channel.send(
            broker_id,
            metadata(number),
            lambda result: self.answers.append((broker_id, number, result.error_code)),
        )

    def received(self, broker_id: int) -> list[int]:
        return [request.message.controller_epoch for request in self.brokers[broker_id].asked(ApiKey.UPDATE_METADATA)]

    async def until(self, condition: Any, seconds: float = 60) -> None:
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.01)


def test_each_broker_gets_its_commands_in_order_and_one_at_a_time() -> None:
    async def main() -> None:
        lab = Lab()
        in_flight: list[int] = []
        for broker in lab.brokers.values():
            broker.latency = 0.05
            broker.on(
                ApiKey.UPDATE_METADATA,
                lambda _, broker=broker: (
                    in_flight.append(sum(len(transport.outbox) for transport in broker.transports)),
                    UpdateMetadataResponse(),
                )[1],
            )
        for number in range(5):
            lab.send(1, number)
            lab.send(2, number)
        await lab.until(lambda: len(lab.answers) == 10)
        assert lab.received(1) == lab.received(2) == list(range(5))
        assert set(in_flight) == {0}
        assert all(request.version == 8 for request in lab.brokers[1].asked(ApiKey.UPDATE_METADATA))
        await lab.channel.close()

    run(main())


def test_the_own_broker_is_called_directly() -> None:
    async def main() -> None:
        lab = Lab()
        lab.send(0, 3)
        assert lab.answers == [(0, 3, 0)]
        assert lab.inbox.commands == [metadata(3)]
        await lab.channel.close()

    run(main())


def test_a_command_is_sent_until_the_broker_responds(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        lab = Lab()
        lab.brokers[1].accepts = False
        lab.send(1, 1)
        lab.send(1, 2)
        lab.send(2, 1)
        await asyncio.sleep(5)
        assert lab.answers == [(2, 1, 0)]
        assert lab.channel.pending == 2
        lab.brokers[1].accepts = True
        await lab.until(lambda: len(lab.answers) == 3)
        assert lab.received(1) == [1, 2]
        # Lost responses: the request is sent again.
        drops = [True, True, False]
        lab.brokers[1].on(ApiKey.UPDATE_METADATA, lambda _: None if drops.pop(0) else UpdateMetadataResponse())
        lab.send(1, 3)
        await lab.until(lambda: len(lab.answers) == 4)
        assert lab.received(1) == [1, 2, 3, 3, 3]
        await lab.channel.close()

    with caplog.at_level(logging.INFO):
        run(main())
    assert "Controller 0: cannot send UpdateMetadata to broker 1, retrying while it is registered" in caplog.text
    assert "Controller 0: broker 1 responded to UpdateMetadata after" in caplog.text


def test_an_internal_error_does_not_end_the_queue(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        lab = Lab()
        with monkeypatch.context() as patched:
            patched.setattr(lab.channel, "_version_of", lambda _: 1 // 0)
            lab.send(1, 1)
            lab.send(1, 2)
            await asyncio.sleep(1)
        await lab.until(lambda: len(lab.answers) == 2)
        assert lab.received(1) == [1, 2]
        await lab.channel.close()

    run(main())
    assert "Controller 0: cannot send UpdateMetadata to broker 1, retrying while it is registered" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_commands_for_a_removed_broker_are_dropped() -> None:
    async def main() -> None:
        lab = Lab()
        lab.brokers[1].accepts = False
        lab.send(1, 1)
        await asyncio.sleep(1)
        lab.channel.remove_broker(1)
        lab.send(1, 2)
        lab.brokers[1].accepts = True
        await asyncio.sleep(1)
        assert lab.received(1) == []
        # Registered again: only new commands are sent.
        lab.channel.add_broker(lab.info(lab.brokers[1], epoch=2))
        lab.send(1, 3)
        await lab.until(lambda: lab.answers)
        assert lab.answers == [(1, 3, 0)]
        assert lab.received(1) == [3]
        await lab.channel.close()

    run(main())


def test_waits_for_delivery() -> None:
    async def main() -> None:
        lab = Lab()
        assert await lab.channel.wait_delivered(1)
        lab.send(1, 1)
        assert await lab.channel.wait_delivered(1)
        assert lab.answers == [(1, 1, 0)]
        lab.brokers[1].on(ApiKey.UPDATE_METADATA, lambda _: None)
        lab.send(1, 2)
        assert not await lab.channel.wait_delivered(0.5)
        await lab.channel.close()

    run(main())


def test_a_leader_and_isr_names_the_listener_of_fetches() -> None:
    """Followers fetch from the inter-broker listener, also if controllers have a listener of their own."""

    async def main() -> None:
        lab = Lab()
        lab.channel._inter_broker_listener = "DATA"
        leader = BrokerInfo(2, (*lab.info(lab.brokers[2]).endpoints, BrokerEndpoint("DATA", "data.example", 9)))
        lab.channel.add_broker(leader)
        done: list[CommandResult] = []
        state = PartitionState(TopicPartition("t", 0), ZERO_UUID, 2, 0, (2, 1), 0, (2, 1))
        lab.channel.send(1, LeaderAndIsr(0, 1, 1, [state]), done.append)
        await lab.until(lambda: done)
        (request,) = lab.brokers[1].asked(ApiKey.LEADER_AND_ISR)
        (live,) = request.message.live_leaders
        assert (live.broker_id, live.host_name, live.port) == (2, "data.example", 9)
        await lab.channel.close()

    run(main())


def test_a_leader_and_isr_names_the_addresses_of_leaders() -> None:
    async def main() -> None:
        lab = Lab("2.6")
        tp = TopicPartition("t", 0)
        done: list[CommandResult] = []
        command = LeaderAndIsr(0, 1, 1, [PartitionState(tp, ZERO_UUID, 2, 0, (2, 1), 0, (2, 1))])
        lab.channel.send(1, command, done.append)
        await lab.until(lambda: done)
        (request,) = lab.brokers[1].asked(ApiKey.LEADER_AND_ISR)
        assert request.version == 4
        (leader,) = request.message.live_leaders
        assert (leader.broker_id, leader.host_name, leader.port) == (2, *lab.brokers[2].address)
        await lab.channel.close()

    run(main())
