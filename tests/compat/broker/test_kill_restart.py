"""A broker that is killed and restarted repeatedly under the load of all three Python clients.

No acknowledged record may be lost, and each producer's records are in order in each partition. A record may occur twice
if it was written but its response was lost; only its first occurrence counts. Consumers that read during the kills
receive exactly the records of the final log, none twice and none missing. `HEADRACE_BROKER_KILL_ROUNDS` sets the number
of kills (default: 3).
"""

import gc
import logging
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.broker.admin_clients import ConfluentAdmin
from tests.support.broker.clients import Confluent
from tests.support.broker.load import READERS, WRITERS, Reader, Writer
from tests.support.broker.process import Broker, eventually
from tests.support.broker.under_test import make_broker
from tests.support.seeds import choose_seed

ROUNDS = int(os.environ.get("HEADRACE_BROKER_KILL_ROUNDS", "3"))
RECORDS_A_ROUND = range(20, 600)  # the minimum of each writer before the next kill
PARTITIONS = 3
LIMIT_SECONDS = 180.0


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    with make_broker(tmp_path / "data") as running:
        ConfluentAdmin(running.bootstrap).create("load", PARTITIONS)
        yield running


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Silences the clients' logs about the missing broker, and kafka-python's unclosed sockets."""
    for name in ("kafka", "aiokafka"):
        caplog.set_level(logging.CRITICAL, name)
    yield
    gc.collect()  # here, where its warnings are ignored


def await_progress(writers: list[Writer], readers: list[Reader], more: int) -> None:
    """Waits until each writer has more acknowledgements, and each reader more records."""
    wanted = [(writer, writer.count() + more) for writer in writers]
    seen = [(reader, sum(map(len, reader.found.values())) + more) for reader in readers]

    def is_reached() -> bool:
        for worker in (*writers, *readers):
            assert worker.error is None, f"{worker.name}: {worker.error!r}"
        return all(writer.count() >= count for writer, count in wanted) and all(
            sum(map(len, reader.found.values())) >= count for reader, count in seen
        )

    eventually(is_reached, f"all went on: {[(writer.name, writer.count()) for writer in writers]}", LIMIT_SECONDS)


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.timeout(600 + 60 * ROUNDS)
def test_kill_and_restart_under_load(own_broker: Broker) -> None:
    place = (own_broker.bootstrap, "load", PARTITIONS)
    writers: list[Writer] = [kind(*place) for kind in WRITERS]
    readers: list[Reader] = [kind(*place) for kind in READERS]
    for worker in (*writers, *readers):
        worker.start()
    choice = random.Random(choose_seed())
    for number in range(ROUNDS):
        await_progress(writers, readers, choice.choice(RECORDS_A_ROUND))
        if number == ROUNDS - 1:
            own_broker.stop()  # and one clean stop
        else:
            own_broker.kill()
        own_broker.start()
    await_progress(writers, readers, RECORDS_A_ROUND[-1])
    for writer in writers:
        writer.finish()

    rows = Confluent(own_broker.bootstrap).read("load", range(PARTITIONS))
    log: dict[int, list[tuple[int, bytes]]] = {number: [] for number in range(PARTITIONS)}
    for row in rows:
        log[row.partition].append((row.offset, row.value or b""))
    for reader in readers:
        reader.finish_at({partition: len(found) for partition, found in log.items()})

    for partition, found in log.items():
        assert [offset for offset, _ in found] == list(range(len(found)))
        numbers: dict[str, list[int]] = {writer.name: [] for writer in writers}
        for _, value in found:
            name, _, number_text = value.rstrip(b".").decode().partition(":")
            numbers[name].append(int(number_text))
        for writer in writers:
            check_writer(writer, partition, numbers[writer.name], found)
        for reader in readers:
            assert reader.found[partition] == found, f"{reader.name} saw something else"


def check_writer(writer: Writer, partition: int, written: list[int], log: list[tuple[int, bytes]]) -> None:
    assert writer.failures == []
    first = list(dict.fromkeys(written))
    lost = {number for number, _ in writer.acknowledged[partition]} - set(first)
    assert not lost, f"{writer.name}: {len(lost)} acknowledged records are lost, as {sorted(lost)[:10]}"
    assert first == list(range(partition, writer.sent, PARTITIONS)), f"{writer.name}: records are not in order"
    for number, offset in writer.acknowledged[partition]:
        assert log[offset][1].startswith(f"{writer.name}:{number}.".encode()), f"{number} is not at offset {offset}"
