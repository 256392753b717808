"""Produce with a transaction coordinator on another broker: only batches of the same producer and partition wait."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.support.broker.producing import ProducePath, produce_frame
from tests.support.broker.replicas import TP, TP_1
from tests.support.cluster.fake_cluster import async_test, until

from headrace.broker.transaction_verification import Verifier, produce_operation
from headrace.common.errors import KafkaError, NotEnoughReplicasError
from headrace.coordinator.result import CoordinatorResponse, ProducerInfo
from headrace.protocol import decode
from headrace.protocol.messages.produce import ProduceResponse
from headrace.records import BatchBuilder, BatchHeader, Compression

VERSION = 12
_HEADER_BYTES = 9
"""Size, correlation id, no tagged fields."""
PRODUCER, OTHER = ProducerInfo(70, 3), ProducerInfo(71, 0)


class Connection:
    """Sends responses in the order of the requests, as a real connection."""

    listener_name = "PLAINTEXT"
    peer = ("127.0.0.1", 1)
    context: Any = None
    closed = False
    authentication: Any = None

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.retained = 0
        self.holds = 0
        self._slots: list[list[bytes]] = []

    def expect_response(self) -> Any:
        slot: list[bytes] = []
        self._slots.append(slot)

        def send(frame: bytes) -> None:
            slot.append(bytes(frame))
            while self._slots and self._slots[0]:
                self.sent += self._slots.pop(0)

        return SimpleNamespace(send=send)

    def retain(self, change: int) -> None:
        self.retained += change

    def hold_requests(self, retained_bytes: int = 0) -> None:
        self.holds += 1

    def release_requests(self, retained_bytes: int = 0) -> None:
        self.holds -= 1

    def close(self, _: str) -> None:
        self.closed = True


class Coordinator:
    """A runtime whose answers the test gives later."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []

    def __contains__(self, partition: int) -> bool:
        return True

    def write(self, partition: int, operation: Any, done: Any) -> None:
        self.waiting.append(done)

    read = write

    def answer(self, error: KafkaError | None = None) -> None:
        self.waiting.pop(0)(CoordinatorResponse(True, error))


class World:
    def __init__(self, directory: Path, **topic: object):
        self.path = ProducePath(directory, **topic)
        self.path.connection = self.connection = Connection()  # type: ignore[assignment]
        self.coordinator = Coordinator()
        coordinator: Any = self.coordinator
        unused: Any = None
        self.verifier = Verifier(1, unused, coordinator, lambda _: 0, unused, lambda: True)
        handler: Any = self.path.dispatcher._apis[0].handler
        handler.keywords["transactions"] = SimpleNamespace(check_append=self._check_append)
        handler.keywords["batch_inflater"] = SimpleNamespace(run=self._inflate, log_rejected=lambda *_: None)
        self.inflated: list[asyncio.Future[None]] = []

    def _check_append(self, partition: Any, header: BatchHeader, transactional_id: Any, version: int) -> Any:
        producer = ProducerInfo(header.producer_id, header.producer_epoch)
        return self.verifier.check_append(
            partition, producer, header.base_sequence, transactional_id, produce_operation(version)
        )

    async def _inflate(self, work: Callable[[], Any]) -> Any:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.inflated.append(future)
        await future
        return work()

    def produce(self, *batches: tuple[int, bytearray], acks: int = 1, transactional: bool = True) -> None:
        name = "id" if transactional else None
        self.path.receive(produce_frame(batches, acks=acks, version=VERSION, transactional_id=name))

    def codes(self) -> list[list[int]]:
        """Returns the error codes of each response so far."""
        found = []
        for frame in self.connection.sent:
            response: Any = decode(ProduceResponse, VERSION, bytearray(frame), _HEADER_BYTES)
            found.append([part.error_code for topic in response.responses for part in topic.partition_responses])
        return found

    def end(self, tp: Any = TP) -> int:
        partition = self.path.replicas.find(*tp)
        assert partition.log is not None
        return int(partition.log.log_end_offset)


def batch(
    sequence: int, producer: ProducerInfo | None = PRODUCER, size: int = 10, compression: Any = None
) -> bytearray:
    options: dict[str, Any] = {}
    if producer is not None:
        options = {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "base_sequence": sequence,
            "transactional": True,
        }
    if compression is not None:
        options["codec"] = compression
    builder = BatchBuilder(**options)
    builder.append(b"", b"x" * size, 0)
    return builder.build()


def remote(test: Callable[[World], Any]) -> Callable[[Path], None]:
    @async_test
    async def run(tmp_path: Path) -> None:
        world = World(tmp_path)
        with world.path:
            await test(world)
            await until(lambda: not world.connection.retained and not world.connection.holds)
            assert not world.verifier.last_appends

    return run


@remote
async def test_other_requests_of_the_connection_are_handled_meanwhile(world: World) -> None:
    world.produce((0, batch(0)))
    assert world.connection.retained == len(batch(0))
    world.produce((1, batch(0, None)), transactional=False)
    world.produce((1, batch(0, OTHER)))
    world.produce((1, batch(0)))
    assert (world.end(TP), world.end(TP_1)) == (0, 1), "the first batch of each producer waits"
    assert len(world.coordinator.waiting) == 3
    world.coordinator.waiting[1](CoordinatorResponse(None))
    await until(lambda: world.end(TP_1) == 2)
    assert world.codes() == [], "responses keep their order"
    world.coordinator.answer()
    await until(lambda: len(world.codes()) == 3)
    world.coordinator.waiting[-1](CoordinatorResponse(None))
    await until(lambda: len(world.codes()) == 4)
    assert world.codes() == [[0]] * 4


@remote
async def test_batches_of_a_producer_stay_in_order(world: World) -> None:
    for sequence in range(4):
        world.produce((0, batch(sequence)))
    assert len(world.coordinator.waiting) == 1
    world.coordinator.answer()
    await until(lambda: len(world.codes()) == 4)
    assert world.codes() == [[0]] * 4
    assert world.end() == 4
    world.produce((0, batch(4)))
    assert len(world.codes()) == 5, "later batches of the transaction are appended at once"


@remote
async def test_batches_behind_a_failure_are_refused(world: World) -> None:
    for sequence in range(3):
        world.produce((0, batch(sequence)))
    world.coordinator.answer(NotEnoughReplicasError("not now"))
    await until(lambda: len(world.codes()) == 3)
    assert world.codes() == [[NotEnoughReplicasError.code]] * 3
    assert world.end() == 0


@remote
async def test_each_partition_of_a_request_has_its_own_result(world: World) -> None:
    world.produce((0, batch(0)), (1, batch(0)))
    world.coordinator.answer()
    world.coordinator.answer(NotEnoughReplicasError("not now"))
    await until(lambda: len(world.codes()) == 1)
    assert world.codes() == [[0, NotEnoughReplicasError.code]]
    assert (world.end(TP), world.end(TP_1)) == (1, 0)


@remote
async def test_acks_0_gets_no_response(world: World) -> None:
    world.produce((0, batch(0)), acks=0)
    world.coordinator.answer()
    await until(lambda: world.end() == 1)
    assert (world.codes(), world.connection.closed) == ([], False)
    world.produce((1, batch(0)), acks=0)
    world.coordinator.answer(NotEnoughReplicasError("not now"))
    await until(lambda: world.connection.closed)


@remote
async def test_a_large_batch_after_its_verification_stays_in_order(world: World) -> None:
    """It is decompressed in a thread when it is verified; the next batch waits for it."""
    world.produce((0, batch(0, size=5_000_000, compression=Compression.GZIP)))
    world.produce((0, batch(1)))
    world.coordinator.answer()
    await until(lambda: world.inflated)
    assert world.end() == 0
    world.inflated.pop().set_result(None)
    await until(lambda: len(world.codes()) == 2)
    assert (world.codes(), world.end()) == ([[0], [0]], 2)


@remote
async def test_a_marker_during_decompression_refuses_the_batch(world: World) -> None:
    world.produce((0, batch(0, size=5_000_000, compression=Compression.GZIP)))
    world.coordinator.answer()
    await until(lambda: world.inflated)
    world.verifier.marker_written(TP, PRODUCER)
    world.inflated.pop().set_result(None)
    await until(lambda: len(world.codes()) == 1)
    assert (world.codes(), world.end()) == ([[48]], 0)


@remote
async def test_a_large_batch_of_a_transaction_that_ends_meanwhile_is_verified_again(world: World) -> None:
    world.produce((0, batch(0)))
    world.coordinator.answer()
    await until(lambda: len(world.codes()) == 1)
    world.produce((0, batch(1, size=5_000_000, compression=Compression.GZIP)))
    assert world.connection.holds == 1
    entry = world.path.replicas.find(*TP).log.producers.entries[PRODUCER.producer_id]  # type: ignore[union-attr]
    entry.transaction_first_offset = None
    await until(lambda: world.inflated)
    world.inflated.pop().set_result(None)
    await until(lambda: world.coordinator.waiting)
    world.coordinator.answer(NotEnoughReplicasError("not now"))
    await until(lambda: len(world.codes()) == 2)
    assert (world.codes()[1], world.end()) == ([NotEnoughReplicasError.code], 1)
