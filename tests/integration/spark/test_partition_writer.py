"""The transaction of a source partition: written once, whichever process owns the transactional id."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from tests.support.spark.topic_rows import records

from headrace.common.types import TopicPartition
from headrace.spark import clients
from headrace.spark.markers import NotDeterministicError
from headrace.spark.partition_writer import PartitionWriter, WriterFencedError
from headrace.spark.sink_options import SinkOptions, sink_options
from headrace.testing import EmbeddedBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


class Process:
    """The clients of a worker process. Several of them share the test's process."""

    def __init__(self, servers: str) -> None:
        self.options: SinkOptions = sink_options(
            {"kafka.bootstrap.servers": servers, "kafka.client.id": f"worker-{id(self)}"}, streaming=False
        )

    def writer(self, batch_id: int, query: str, partition: int = 0) -> PartitionWriter:
        return PartitionWriter(self.options, query, "flow", TopicPartition("in", partition), batch_id)

    def write(self, batch_id: int, query: str, *values: str, partition: int = 0) -> bool:
        """Writes a batch. Returns True if it was already written."""
        with self.writer(batch_id, query, partition) as writer:
            writer.send(pa.record_batch({"value": pa.array(values, pa.string())}), query)
            writer.commit()
            return writer.is_replay


@pytest.fixture
def processes(broker: EmbeddedBroker) -> Iterator[tuple[Process, Process]]:
    yield Process(broker.bootstrap_servers), Process(broker.bootstrap_servers)
    clients.close_all()


def written(broker: EmbeddedBroker, topic: str) -> list[str]:
    return [record.value.decode() for record in records(broker.bootstrap_servers, topic)]


def test_processes_take_turns(broker: EmbeddedBroker, processes: tuple[Process, Process]) -> None:
    broker.create_topic("turns", 1)
    first, second = processes
    for batch_id, process in enumerate((first, first, second, first, second, second)):
        assert not process.write(batch_id, "turns", f"{batch_id}")
        if batch_id == 3:
            assert first.write(3, "turns", "3"), "a replay in the same process"
            with pytest.raises(WriterFencedError):
                second.write(3, "turns", "3")  # it wrote batch 2, and does not know of batch 3
            assert second.write(3, "turns", "3"), "a replay in another process"
    assert written(broker, "turns") == ["0", "1", "2", "3", "4", "5"]


def test_owner_that_was_fenced_tries_again(broker: EmbeddedBroker, processes: tuple[Process, Process]) -> None:
    broker.create_topic("fenced", 1)
    first, second = processes
    first.write(0, "fenced", "0")
    with second.writer(1, "fenced") as writer:
        writer.send(pa.record_batch({"value": ["lost"]}), "fenced")  # ends without a commit
    with pytest.raises(WriterFencedError):
        first.write(1, "fenced", "1")
    assert not first.write(1, "fenced", "1")
    second.write(2, "fenced", "2")
    assert written(broker, "fenced") == ["0", "1", "2"]


def test_replay_with_other_rows_is_an_error(broker: EmbeddedBroker, processes: tuple[Process, Process]) -> None:
    broker.create_topic("other", 1)
    first, second = processes
    first.write(4, "other", "a", "b")
    for values in (("a",), ("a", "c"), ()):
        with pytest.raises(NotDeterministicError, match="batch 4 was written before with 2 rows"):
            second.write(4, "other", *values)
    with pytest.raises(NotDeterministicError, match="batch 3 is older than batch 4"):
        second.write(3, "other", "a")
    assert written(broker, "other") == ["a", "b"]


def test_batches_without_rows(broker: EmbeddedBroker, processes: tuple[Process, Process]) -> None:
    broker.create_topic("empty", 1)
    first, second = processes
    first.write(0, "empty")
    first.write(1, "empty", "1")
    second.write(2, "empty")
    first.write(3, "empty", "3")
    assert written(broker, "empty") == ["1", "3"]


def test_more_partitions_than_producers(broker: EmbeddedBroker, processes: tuple[Process, Process]) -> None:
    broker.create_topic("many", 1)
    first, _ = processes
    for batch_id in range(2):
        for partition in range(11):
            first.write(batch_id, "many", f"{batch_id}/{partition}", partition=partition)
    assert written(broker, "many") == [f"{batch_id}/{partition}" for batch_id in range(2) for partition in range(11)]
