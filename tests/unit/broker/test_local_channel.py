import asyncio
import logging

import pytest
from tests.support.cluster.fake_cluster import async_test

from headrace.broker.local_channel import PARTITIONS_PER_TURN, LocalChannel
from headrace.cluster.commands import Command, CommandResult, ReplicaToStop, StopReplica, UpdateMetadata
from headrace.common.types import TopicPartition

PARTITIONS = [TopicPartition("t", index) for index in range(3 * PARTITIONS_PER_TURN + 1)]


def stop_all() -> StopReplica:
    return StopReplica(1, 1, 1, [ReplicaToStop(tp, 0, True) for tp in PARTITIONS])


def metadata() -> UpdateMetadata:
    return UpdateMetadata(1, 1, 1, [], [])


class Applied:
    """A broker that records its commands; every partition fails with its own number."""

    def __init__(self) -> None:
        self.slices: list[int] = []

    def __call__(self, command: Command) -> CommandResult:
        self.slices.append(len(command.partitions))
        if isinstance(command, UpdateMetadata):
            return CommandResult()
        return CommandResult(partition_errors={one.tp: one.tp.partition for one in command.partitions})  # type: ignore[union-attr]


@async_test
async def test_long_command_lets_other_work_run() -> None:
    applied, answers = Applied(), list[CommandResult]()
    channel = LocalChannel(1, applied)
    channel.send(1, stop_all(), answers.append)
    channel.send(1, metadata(), answers.append)
    turns = 0
    while len(answers) < 2:
        await asyncio.sleep(0)
        turns += 1
    assert turns > 3
    assert applied.slices == [PARTITIONS_PER_TURN] * 3 + [1, 0]
    assert answers[0].partition_errors == {tp: tp.partition for tp in PARTITIONS}
    await channel.wait_idle()


@async_test
async def test_is_idle_after_all_commands_are_applied() -> None:
    applied, answers = Applied(), list[CommandResult]()
    channel = LocalChannel(1, applied)
    await channel.wait_idle()
    channel.send(1, stop_all(), answers.append)
    channel.send(1, stop_all(), answers.append)
    await channel.wait_idle()
    assert len(answers) == 2
    channel.send(1, metadata(), answers.append)
    await channel.wait_idle()
    assert len(answers) == 3


@async_test
async def test_stops_a_refused_command() -> None:
    commands = list[Command]()

    def refuse(command: Command) -> CommandResult:
        commands.append(command)
        return CommandResult(error_code=11)

    answers = list[CommandResult]()
    channel = LocalChannel(1, refuse)
    channel.send(1, stop_all(), answers.append)
    await channel.wait_idle()
    assert [answer.error_code for answer in answers] == [11]
    assert len(commands) == 1


@async_test
async def test_continues_after_a_failed_command() -> None:
    def fail(_: Command) -> CommandResult:
        raise RuntimeError("bug")

    answers = list[CommandResult]()
    channel = LocalChannel(1, fail)
    logging.disable(logging.ERROR)
    try:
        channel.send(1, stop_all(), answers.append)
        channel.send(1, metadata(), answers.append)
        await channel.wait_idle()
    finally:
        logging.disable(logging.NOTSET)
    assert [answer.error_code for answer in answers] == [-1, -1]


@async_test
async def test_applies_nothing_after_close() -> None:
    applied, answers = Applied(), list[CommandResult]()
    channel = LocalChannel(1, applied)
    channel.send(1, stop_all(), answers.append)
    await asyncio.sleep(0)
    await channel.close()
    channel.send(1, metadata(), answers.append)
    await channel.wait_idle()
    assert applied.slices == [PARTITIONS_PER_TURN]
    assert answers == []


@async_test
async def test_cannot_reach_another_broker(caplog: pytest.LogCaptureFixture) -> None:
    channel = LocalChannel(1, Applied())
    channel.send(2, metadata(), lambda _: pytest.fail("answered"))
    await channel.wait_idle()
    assert "cannot send controller commands to broker 2" in caplog.text
