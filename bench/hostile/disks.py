"""Attacks on files and disks: few file descriptors, many partitions, a foreign data directory, a full disk."""

import resource
from pathlib import Path

from tests.support.net.wire_client import WireClient

from bench.broker_sides import Side
from bench.broker_wire import HOST
from bench.harness import seconds_of
from bench.hostile.attack import Attack, Row
from headrace.common.errors import for_code
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.records import encode_rows

_SECONDS = 300.0
_TOPICS_PER_REQUEST = 1_000  # Apache Kafka rejects 2,000 topics with 5 partitions in one request
_MAX_STOP_SECONDS = 10.0
_FULL_BYTES = 100_000


class FewFiles(Attack):
    """Creates 10,000 partitions on a broker that can open 1,024 files, and writes to 1,000 of them."""

    name = "10,000 partitions with ulimit -n 1024"
    max_wait_ms = None

    def prepare(self, side: Side) -> None:
        resource.prlimit(side.process_id(), resource.RLIMIT_NOFILE, (1024, 1024))

    def run(self, side: Side) -> str:
        topics = 100 if self.quick else 2_000
        with WireClient((HOST, side.port), timeout=_SECONDS) as client:
            try:
                seconds = seconds_of(lambda: create(client, "t", topics, 5))
                for number in range(topics // 2):
                    for partition in (0, 4):
                        produce(client, f"t-{number}", partition)
            except (AssertionError, OSError) as error:
                return f"failed: {error or type(error).__name__}"
        return f"{topics * 5:,} partitions created in {seconds:.1f} s"


class ManyPartitionsStop(Attack):
    """Stops a broker with 10,000 empty partitions."""

    name = "orderly shutdown with 10,000 empty partitions"

    def measure(self, kind: type[Side], directory: Path) -> Row:
        side = kind(directory)
        side.start()
        try:
            with WireClient((HOST, side.port), timeout=_SECONDS) as client:
                create(client, "t", 100 if self.quick else 2_000, 5)
            seconds = seconds_of(side.stop)
        finally:
            side.kill()
        missed = f"stops within {_MAX_STOP_SECONDS:g} s" if seconds > _MAX_STOP_SECONDS else ""
        return Row(self.name, side.name, outcome=f"stopped in {seconds:.1f} s", missed=missed)


class ForeignDirectory(Attack):
    """Starts a broker on the data directory of another cluster."""

    name = "a data directory of another cluster"

    def measure(self, kind: type[Side], directory: Path) -> Row:
        side = kind(directory)
        side.start()
        try:
            with WireClient((HOST, side.port), timeout=_SECONDS) as client:
                create(client, "t", 1, 2)
            side.stop()
            meta = side.data_dir / "meta.properties"
            own = next(line for line in meta.read_text().splitlines() if line.startswith("cluster.id="))
            meta.write_text(meta.read_text().replace(own, "cluster.id=anotherClusterAAAAAAAAAA"))
            before = _listing(side.data_dir)
            side.spawn()
            status = side.wait(_SECONDS)
            changed = [name for name, entry in _listing(side.data_dir).items() if before.get(name) != entry]
        finally:
            side.kill()
        outcome = f"exits with status {status}, {len(changed)} files changed"
        return Row(self.name, side.name, outcome=outcome, missed="untouched" if changed or status == 0 else "")


class FullDisk(Attack):
    """An idempotent producer with five requests in flight, on a disk that is full: the file size is limited."""

    name = "full disk"
    peer = False

    def run(self, side: Side) -> str:
        errors: set[str] = set()
        with WireClient((HOST, side.port), timeout=_SECONDS) as client:
            create(client, "t", 1, 1)
            resource.prlimit(side.process_id(), resource.RLIMIT_FSIZE, (_FULL_BYTES, resource.RLIM_INFINITY))
            sequence = 0
            while not errors:
                code = produce(client, "t-0", 0, sequence, check=False)
                sequence += 1
                if code:
                    errors.add(_name_of(code))
            errors |= {_name_of(produce(client, "t-0", 0, sequence + ahead, check=False)) for ahead in range(4)}
            resource.prlimit(side.process_id(), resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
            codes = {produce(client, "t-0", 0, number, check=False) for number in range(sequence - 1, sequence + 4)}
        return f"producers get {', '.join(sorted(errors))}; {'recovers' if codes == {0} else 'does not recover'}"


def create(client: WireClient, prefix: str, topics: int, partitions: int) -> None:
    new_topics = [
        CreatableTopic(name=f"{prefix}-{number}", num_partitions=partitions, replication_factor=1)
        for number in range(topics)
    ]
    for first in range(0, topics, _TOPICS_PER_REQUEST):
        request = CreateTopicsRequest(topics=new_topics[first : first + _TOPICS_PER_REQUEST], timeout_ms=60_000)
        failed = [topic for topic in client.call(request, 5).topics if topic.error_code]
        assert not failed, f"{len(failed)} topics: {failed[0].error_message or _name_of(failed[0].error_code)}"


def produce(client: WireClient, topic: str, partition: int, sequence: int = -1, *, check: bool = True) -> int:
    """Sends a record of 10 KB and returns the error code. With a sequence number, the producer is idempotent."""
    idempotent = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence} if sequence >= 0 else {}
    records = encode_rows([(None, b"x" * 10_000, 0, ())], **idempotent)  # type: ignore[arg-type]
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=bytes(records))])
    response = client.call(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[data]), 7)
    code = int(response.responses[0].partition_responses[0].error_code)
    assert not check or not code, f"produce to {topic}-{partition}: {_name_of(code)}"
    return code


def _name_of(code: int) -> str:
    return for_code(code).__name__ if code else "no error"


def _listing(directory: Path) -> dict[str, tuple[int, bytes]]:
    """Returns modification time and content of all files."""
    return {
        str(path.relative_to(directory)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in directory.rglob("*")
        if path.is_file()
    }
