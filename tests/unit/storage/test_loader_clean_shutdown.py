from tests.support.storage.logs import MakeManager, make_batch

from headrace.common.types import TopicPartition
from headrace.testing.disks import FaultyFileSystem

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
