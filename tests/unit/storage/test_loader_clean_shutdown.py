from pathlib import Path
from random import Random

import pytest
from tests.support.storage.logs import MakeManager, make_batch

from headrace.common.ids import make_random, random_uuid
from headrace.common.types import TopicPartition
from headrace.testing.disks import FaultyFileSystem, PowerLossFileSystem

TP = TopicPartition("orders", 0)


def test_open_after_clean_shutdown_reads_no_log_data(make_manager: MakeManager) -> None:
    with make_manager() as manager:
        log = manager.create(TP)
        for sequence in range(3):
            log.append_as_leader(make_batch(producer_id=1, producer_epoch=0, base_sequence=sequence), 0)
    disk = FaultyFileSystem()
    reads = disk.fail("read", "*.log")
    with make_manager(files=disk) as manager:
        again = manager.get(TP)
        assert again is not None
        assert again.log_end_offset == 3
        assert again.producers.entries[1].last_sequence == 2
    assert reads.hits == 0


@pytest.mark.parametrize("seed", range(8))
def test_first_flush_after_the_shutdown_of_an_empty_log_syncs_its_topic_id(
    make_manager: MakeManager, tmp_path: Path, seed: int
) -> None:
    disk = PowerLossFileSystem(tmp_path)
    topic_id = random_uuid(make_random(1))
    with make_manager(files=disk) as manager:
        manager.create(TP, topic_id)
    manager = make_manager(files=disk)
    manager.start()
    log = manager.get(TP)
    assert log is not None
    log.append_as_leader(make_batch(), 0)
    log.flush()
    manager.checkpoint_recovery_points()
    manager.abandon()
    disk.crash(Random(seed))
    with make_manager(files=disk) as manager:
        again = manager.get(TP)
        assert again is not None
        assert (again.topic_id, again.log_end_offset) == (topic_id, 1)
