"""Headrace's coordinator loads Apache Kafka's `__transaction_state`, with the content that Kafka's tool prints.

`broker/test_transactions.py` shows that Kafka's tool reads Headrace's.
"""

import shutil
from pathlib import Path

from tests.support.apache_kafka.dump_log import dump_log
from tests.support.apache_kafka.files import KafkaFiles, topic_configs
from tests.support.apache_kafka.transaction_state import last_states
from tests.support.coordinator.transactions import Coordinator
from tests.support.storage.files import open_manager

from headrace.broker.config.coordinators import TRANSACTION_TOPIC
from headrace.common.types import TopicPartition
from headrace.coordinator.transaction.metadata import TransactionMetadata


def loaded(directory: Path) -> dict[str, TransactionMetadata]:
    """Returns the state that coordinators load from all partitions of a directory."""
    found: dict[str, TransactionMetadata] = {}
    with open_manager(directory, topic_configs()) as manager:
        for log in manager:
            if log.tp.topic == TRANSACTION_TOPIC and log.log_end_offset:
                coordinator = Coordinator()
                log.update_high_watermark(log.log_end_offset)
                content = log.read(log.log_start_offset, 1 << 24).slice
                coordinator.bench.log.batches = content.batches() if content is not None else []
                coordinator.crash()
                found |= coordinator.bench.shard.transactions
    return found


def test_loads_kafkas_state(kafka_files: KafkaFiles, tmp_path: Path) -> None:
    logs = [file for file in kafka_files.killed.glob(f"{TRANSACTION_TOPIC}-*/*.log") if file.stat().st_size]
    assert logs
    expected = last_states(dump_log(*logs, extra=["--transaction-log-decoder"]))
    found = loaded(Path(shutil.copytree(kafka_files.killed, tmp_path / "data")))
    assert {name: (each.state.code, each.producer_id, each.producer_epoch) for name, each in found.items()} == {
        name: (each["transactionStatus"], each["producerId"], each["producerEpoch"]) for name, each in expected.items()
    }
    assert (found["txn-java"].state.label, found["txn-java"].version) == ("CompleteCommit", 2)
    assert (found["txn-librdkafka"].state.label, found["txn-librdkafka"].version) == ("CompleteAbort", 0)
    assert (found["txn-open"].state.label, found["txn-open"].partitions) == ("Ongoing", {TopicPartition("txn", 0)})
