import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import cast

import pytest
from tests.support.cluster.fake_cluster import async_test

from headrace.broker.control.inbox import PARTITIONS_PER_TURN, CommandInbox
from headrace.broker.replica_manager import ReplicaManager
from headrace.cluster.commands import (
    BrokerInfo,
    CommandResult,
    LeaderAndIsr,
    PartitionState,
    ReplicaToStop,
    StopReplica,
    UpdateMetadata,
)
from headrace.cluster.metadata_image import MetadataImage
from headrace.common.errors import HeadraceError, StaleBrokerEpochError, StaleControllerEpochError
from headrace.common.ids import ZERO_UUID
from headrace.common.types import TopicPartition

PARTITIONS = [TopicPartition("t", index) for index in range(3 * PARTITIONS_PER_TURN + 1)]
EPOCH = 5


def stop_all(controller_epoch: int = 1, broker_epoch: int = EPOCH) -> StopReplica:
    return StopReplica(1, controller_epoch, broker_epoch, [ReplicaToStop(tp, 0, True) for tp in PARTITIONS])


def lead_all() -> LeaderAndIsr:
    return LeaderAndIsr(1, 1, EPOCH, [PartitionState(tp, ZERO_UUID, 1, 0, (1,), 0, (1,)) for tp in PARTITIONS])


def metadata(controller_epoch: int = 1, broker_epoch: int = EPOCH, full: bool = False) -> UpdateMetadata:
    return UpdateMetadata(1, controller_epoch, broker_epoch, [BrokerInfo(1)], [], full)


class Replicas:
    """A replica manager that records the sizes of its commands; every partition fails with its own number."""

    def __init__(self) -> None:
        self.slices: list[tuple[str, int]] = []
        self.on_command: Callable[[], None] = lambda: None
        self.complete_images: list[MetadataImage] = []

    def stop(self, command: StopReplica) -> dict[TopicPartition, int]:
        self.slices.append(("stop", len(command.partitions)))
        self.on_command()
        return {replica.tp: replica.tp.partition for replica in command.partitions}

    def lead_or_follow(self, command: LeaderAndIsr) -> dict[TopicPartition, int]:
        self.slices.append(("lead", len(command.partitions)))
        self.on_command()
        return {state.tp: 0 for state in command.partitions}

    def drop_reassigned(self, image: MetadataImage) -> None:
        self.complete_images.append(image)


class Lab:
    def __init__(self) -> None:
        self.replicas = Replicas()
        self.image = MetadataImage()
        self.epoch = EPOCH
        self.inbox = CommandInbox(1, self.image, cast(ReplicaManager, self.replicas), lambda: self.epoch)
        self.inbox.start()
        self.answers: list[CommandResult] = []

    async def send(self, *commands: StopReplica | LeaderAndIsr | UpdateMetadata) -> list[CommandResult]:
        first = len(self.answers)
        for command in commands:
            self.inbox.submit(command, self.answers.append)
        await self.inbox.wait_idle()
        return self.answers[first:]


@async_test
async def test_reads_the_configs_of_topics_before_a_command() -> None:
    lab = Lab()
    steps: list[str] = []

    async def load_configs(topics: Iterable[str]) -> None:
        steps.append(f"configs of {sorted(topics)}")
        await asyncio.sleep(0)
        if len(steps) > 2:
            raise HeadraceError("the store cannot be reached")

    inbox = CommandInbox(1, lab.image, cast(ReplicaManager, lab.replicas), lambda: lab.epoch, load_configs)
    inbox.start()
    lab.replicas.on_command = lambda: steps.append("applied")
    for _ in range(2):
        command = replace(lead_all(), partitions=lead_all().partitions[:1])
        inbox.submit(command, lab.answers.append)
        await inbox.wait_idle()
    assert steps == [f"configs of ['{PARTITIONS[0].topic}']", "applied"] * 2
    assert all(answer.error_code == 0 for answer in lab.answers)


@async_test
async def test_long_command_lets_other_work_run_but_no_other_command() -> None:
    lab = Lab()
    lab.inbox.submit(stop_all(), lab.answers.append)
    lab.inbox.submit(lead_all(), lab.answers.append)
    turns = 0
    while len(lab.answers) < 2:
        await asyncio.sleep(0)
        turns += 1
    assert turns > 3
    sizes = [PARTITIONS_PER_TURN] * 3 + [1]
    assert lab.replicas.slices == [("stop", size) for size in sizes] + [("lead", size) for size in sizes]
    assert lab.answers[0].partition_errors == {tp: tp.partition for tp in PARTITIONS}


@async_test
async def test_a_newer_controller_waits_for_the_end_of_a_command() -> None:
    lab = Lab()
    lab.inbox.submit(stop_all(controller_epoch=1), lab.answers.append)
    await asyncio.sleep(0)
    await lab.send(metadata(controller_epoch=2), stop_all(controller_epoch=1))
    assert [answer.error_code for answer in lab.answers] == [0, 0, StaleControllerEpochError.code]
    assert len(lab.replicas.slices) == 4


@async_test
async def test_commands_of_old_controllers_change_nothing() -> None:
    lab = Lab()
    await lab.send(metadata(controller_epoch=3))
    answers = await lab.send(stop_all(2), lead_all(), metadata(2))
    assert [answer.error_code for answer in answers] == [StaleControllerEpochError.code] * 3
    assert lab.replicas.slices == []
    assert lab.image.controller_epoch == 3


@async_test
async def test_commands_for_an_old_registration_change_nothing() -> None:
    lab = Lab()
    answers = await lab.send(stop_all(9, EPOCH - 1), metadata(9, EPOCH - 1))
    assert [answer.error_code for answer in answers] == [StaleBrokerEpochError.code] * 2
    assert lab.replicas.slices == []
    assert lab.image.controller_epoch == 0
    # From a controller that does not send the epoch, or knows a newer one.
    answers = await lab.send(metadata(9, -1), metadata(9, EPOCH + 1))
    assert [answer.error_code for answer in answers] == [0, 0]


@async_test
async def test_commands_wait_until_the_broker_knows_its_epoch() -> None:
    lab = Lab()
    lab.epoch = -1
    inbox = CommandInbox(1, lab.image, cast(ReplicaManager, lab.replicas), lambda: lab.epoch)
    inbox.submit(stop_all(1, EPOCH - 1), lab.answers.append)
    for _ in range(10):
        await asyncio.sleep(0)
    assert lab.answers == []
    lab.epoch = EPOCH
    inbox.start()
    await inbox.wait_idle()
    assert [answer.error_code for answer in lab.answers] == [StaleBrokerEpochError.code]


@async_test
async def test_tells_when_the_metadata_is_complete() -> None:
    lab = Lab()
    await lab.send(metadata())
    assert lab.image.is_alive(1)
    assert not lab.inbox.full_metadata.is_set()
    assert lab.replicas.complete_images == []
    await lab.send(metadata(full=True))
    assert lab.inbox.full_metadata.is_set()
    assert lab.replicas.complete_images == [lab.image]


@async_test
async def test_continues_after_a_failed_command() -> None:
    lab = Lab()

    def fail() -> None:
        raise RuntimeError("bug")

    lab.replicas.on_command = fail
    logging.disable(logging.ERROR)
    try:
        answers = await lab.send(stop_all(), metadata())
    finally:
        logging.disable(logging.NOTSET)
    assert [answer.error_code for answer in answers] == [-1, 0]


@async_test
async def test_applies_nothing_after_close() -> None:
    lab = Lab()
    lab.inbox.submit(stop_all(), lab.answers.append)
    await asyncio.sleep(0)
    await lab.inbox.close()
    assert await lab.send(metadata()) == []
    assert lab.replicas.slices == [("stop", PARTITIONS_PER_TURN)]


@async_test
async def test_the_log_names_a_new_controller(caplog: pytest.LogCaptureFixture) -> None:
    lab = Lab()
    with caplog.at_level(logging.INFO):
        await lab.send(metadata(4), metadata(4), lead_all())
    assert caplog.text.count("the active controller is broker 1, controller epoch 4") == 1
