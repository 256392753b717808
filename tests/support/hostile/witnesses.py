"""Checks on a broker under attack: good clients, process metrics, and data that existed before."""

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.support.net.wire_calls import batch, fetch, fetch_request, produce, produce_request
from tests.support.net.wire_client import WireClient

from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.end_txn import EndTxnRequest
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from headrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from headrace.records import Compression, decode_rows, split_batches

Address = tuple[str, int]
CONCURRENT_TRANSACTIONS = 51
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
LOG_FILES = (".log", ".index", ".timeindex")


def create_topic(client: WireClient, name: str, partitions: int = 1) -> None:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    (made,) = client.call(CreateTopicsRequest(topics=[topic], timeout_ms=60_000)).topics
    assert made.error_code == 0, made


def values_in(found: Any) -> list[bytes | None]:
    return [
        record.value
        for stored in split_batches(bytes(found.records), allow_partial=True)
        for record in decode_rows(stored.records())
    ]


def read_all(client: WireClient, topic: str, partition: int = 0) -> list[bytes | None]:
    """Returns all values of a partition in order, and checks their offsets."""
    values: list[bytes | None] = []
    while True:
        found = fetch(client, len(values), topic, partition)
        assert found.error_code == 0, found
        got = values_in(found)
        if not got:
            assert found.high_watermark == len(values)
            return values
        values += got


class GoodClient(threading.Thread):
    """Produces, fetches and sends other requests continuously. The first wrong response ends it."""

    def __init__(self, address: Address, topic: str, seed: int):
        super().__init__(name=f"good client of {topic}", daemon=True)
        self.topic = topic
        self.acknowledged: list[bytes | None] = []
        self.rounds = 0
        self.slowest_seconds = 0.0
        self.error: BaseException | None = None
        self._client = WireClient(address, client_id=f"good-{topic}", timeout=120.0)
        self._random = random.Random(seed)
        self._ended = threading.Event()
        create_topic(self._client, topic)

    def run(self) -> None:
        try:
            while not self._ended.is_set():
                started = time.monotonic()
                self._round()
                self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - started)
                self.rounds += 1
        except BaseException as error:  # noqa: BLE001 - raised by `check`
            self.error = error

    def _round(self) -> None:
        rng, client, topic = self._random, self._client, self.topic
        offset = len(self.acknowledged)
        values = [f"{topic} {offset + i} ".encode() + rng.randbytes(rng.choice((0, 50, 500))) for i in range(3)]
        reply = produce(
            client, batch(*values, codec=rng.choice(list(Compression))), topic=topic, acks=rng.choice((1, -1))
        )
        assert (reply.error_code, reply.base_offset) == (0, offset), reply
        self.acknowledged += values
        found = fetch(client, offset, topic, max_wait_ms=10_000)
        assert (found.error_code, found.high_watermark) == (0, offset + 3), found
        assert values_in(found) == values
        what = rng.randrange(4)
        if what == 0:
            earlier = rng.randrange(0, offset + 3, 3)
            got = values_in(fetch(client, earlier, topic))
            assert got == self.acknowledged[earlier : earlier + len(got)]
            assert got
        elif what == 1:
            asked = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(timestamp=-1)])
            (told,) = client.call(ListOffsetsRequest(replica_id=-1, topics=[asked]), 7).topics
            assert told.partitions[0].offset == offset + 3
        elif what == 2:
            (told,) = client.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12).topics
            assert (told.name, told.error_code, len(told.partitions)) == (topic, 0, 1)

    def check(self) -> None:
        """Raises the error, if there was one."""
        if self.error is not None:
            raise AssertionError(f"the {self.name} noticed something: {self.error!r}") from self.error

    def finish(self) -> None:
        """Stops after the current round."""
        self._ended.set()
        if self.ident is not None:
            self.join(180)
        self._client.close()


class Follower(threading.Thread):
    """Fetches each record of a good client's topic with long polls."""

    def __init__(self, address: Address, good: GoodClient):
        super().__init__(name=f"follower of {good.topic}", daemon=True)
        self.read = 0
        self.error: BaseException | None = None
        self._good = good
        self._client = WireClient(address, client_id="follower", timeout=120.0)
        self._ended = threading.Event()

    def run(self) -> None:
        try:
            while not self._ended.is_set():
                reply = self._client.call(fetch_request(self.read, self._good.topic, max_wait_ms=200), 12)
                ((found,),) = (found.partitions for found in reply.responses)
                assert found.error_code == 0, found
                for value in values_in(found):
                    assert value is not None
                    assert value.startswith(f"{self._good.topic} {self.read} ".encode()), value
                    self.read += 1
        except BaseException as error:  # noqa: BLE001 - raised by `check`
            self.error = error

    def check(self) -> None:
        if self.error is not None:
            raise AssertionError(f"the {self.name} noticed something: {self.error!r}") from self.error

    def finish(self) -> None:
        self._ended.set()
        if self.ident is not None:
            self.join(180)
        self._client.close()


class GoodMember(threading.Thread):
    """A group member that commits offsets, with and without transactions. The first wrong response ends it."""

    SESSION_MS = 120_000

    def __init__(self, address: Address, name: str, partitions: int = 2):
        super().__init__(name=f"good member of {name}", daemon=True)
        self.group = self.topic = name
        self.rounds = 0
        self.committed = -1
        self.records = 0
        """The number of commits in transactions."""
        self.error: BaseException | None = None
        self._client = WireClient(address, client_id=f"good-{name}", timeout=120.0)
        self._ended = threading.Event()
        create_topic(self._client, name, partitions)
        self._join()
        self._init()

    def _join(self) -> None:
        call, group = self._client.call, self.group
        protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
        joined = call(
            JoinGroupRequest(
                group_id=group,
                session_timeout_ms=self.SESSION_MS,
                rebalance_timeout_ms=self.SESSION_MS,
                protocol_type="consumer",
                protocols=protocols,
            ),
            3,
        )
        assert (joined.error_code, joined.leader) == (0, joined.member_id), joined
        self._member: dict[str, Any] = {"member_id": joined.member_id, "generation_id": joined.generation_id}
        mine = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"mine")
        synced = call(SyncGroupRequest(group_id=group, **self._member, assignments=[mine]), 3)
        assert (synced.error_code, synced.assignment) == (0, b"mine"), synced

    def _init(self) -> None:
        given = self._client.call(InitProducerIdRequest(transactional_id=self.group, transaction_timeout_ms=120_000), 5)
        assert given.error_code == 0, given
        self._producer = {"producer_id": given.producer_id, "producer_epoch": given.producer_epoch}
        self._sequence = 0

    def run(self) -> None:
        try:
            while not self._ended.is_set():
                self._round()
                self.rounds += 1
        except BaseException as error:  # noqa: BLE001 - raised by `check`
            self.error = error

    def _round(self) -> None:
        call, group = self._client.call, self.group
        beat = call(HeartbeatRequest(group_id=group, **self._member), 4)
        assert beat.error_code == 0, beat
        offset = self.committed + 1
        one = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=str(offset))
        commit = OffsetCommitRequest(
            group_id=group,
            member_id=self._member["member_id"],
            generation_id_or_member_epoch=self._member["generation_id"],
            topics=[OffsetCommitRequestTopic(name=self.topic, partitions=[one])],
        )
        assert codes_of(call(commit, 8)) == [0]
        self.committed = offset
        self.check_offsets(self._client)
        if self.rounds % 3 == 0:
            self._transaction(self.rounds % 2 == 0)

    def _transaction(self, committed: bool) -> None:
        """Writes a record and commits an offset in one transaction."""
        call, producer = self._client.call, self._producer
        data = batch(
            b"good", transactional=True, base_sequence=self._sequence, **producer, timestamp=int(time.time() * 1000)
        )
        request = produce_request(data, self.topic, 1, acks=-1)
        request.transactional_id = self.group
        while (code := call(request, 12).responses[0].partition_responses[0].error_code) == CONCURRENT_TRANSACTIONS:
            time.sleep(0.01)
        assert code == 0, code
        self._sequence += 1
        asked = TxnOffsetCommitRequestPartition(partition_index=1, committed_offset=self.rounds)
        offsets = TxnOffsetCommitRequest(
            transactional_id=self.group,
            group_id=self.group,
            **producer,
            **self._member,
            topics=[TxnOffsetCommitRequestTopic(name=self.topic, partitions=[asked])],
        )
        assert codes_of(call(offsets, 5)) == [0]
        ended = call(EndTxnRequest(transactional_id=self.group, **producer, committed=committed), 5)
        assert ended.error_code == 0, ended
        self._producer = {"producer_id": ended.producer_id, "producer_epoch": ended.producer_epoch}
        self._sequence = 0
        self.records += committed

    def check_offsets(self, client: WireClient) -> None:
        asked = OffsetFetchRequestTopics(name=self.topic, partition_indexes=[0])
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=self.group, topics=[asked])])
        (found,) = client.call(request, 9).groups
        (told,) = found.topics[0].partitions
        assert (told.error_code, told.committed_offset, told.metadata) == (0, self.committed, str(self.committed)), told

    def check_records(self, client: WireClient) -> None:
        """Checks that exactly the committed transactions are visible."""
        read, offset = 0, 0
        while True:
            found = fetch(client, offset, self.topic, 1, isolation_level=1)
            assert found.error_code == 0, found
            aborted = sorted((each.first_offset, each.producer_id) for each in found.aborted_transactions or ())
            batches = list(split_batches(bytes(found.records), allow_partial=True))
            if not batches:
                break
            for stored in batches:
                offset = stored.next_offset
                if not stored.is_control:
                    read += not any(
                        first == stored.base_offset and producer_id == stored.producer_id
                        for first, producer_id in aborted
                    )
        assert read == self.records

    def check(self) -> None:
        if self.error is not None:
            raise AssertionError(f"the {self.name} noticed something: {self.error!r}") from self.error

    def finish(self) -> None:
        self._ended.set()
        if self.ident is not None:
            self.join(180)
        self._client.close()


def codes_of(reply: Any) -> list[int]:
    return [each.error_code for topic in reply.topics for each in topic.partitions]


class StoredData:
    """Records that existed before the attack, in all codecs and several partitions."""

    TOPIC = "stored"
    PARTITIONS = 3

    def __init__(self, address: Address, seed: int):
        rng = random.Random(seed)
        self._values: dict[int, list[bytes | None]] = {}
        with WireClient(address) as client:
            create_topic(client, self.TOPIC, self.PARTITIONS)
            for partition in range(self.PARTITIONS):
                values = self._values[partition] = []
                for codec in (*Compression, *Compression):
                    some = [rng.randbytes(rng.choice((0, 10, 1000, 20_000))) for _ in range(20)]
                    reply = produce(client, batch(*some, codec=codec), topic=self.TOPIC, partition=partition)
                    assert reply.error_code == 0, reply
                    values += some

    def check(self, address: Address) -> None:
        with WireClient(address) as client:
            for partition, values in self._values.items():
                assert read_all(client, self.TOPIC, partition) == values, f"partition {partition} has changed"


class Process:
    """The metrics of a process."""

    def __init__(self, pid: int):
        self._proc = Path(f"/proc/{pid}")

    @property
    def rss_bytes(self) -> int:
        return int((self._proc / "statm").read_text().split()[1]) * PAGE_BYTES

    @property
    def virtual_bytes(self) -> int:
        return int((self._proc / "statm").read_text().split()[0]) * PAGE_BYTES

    @property
    def open_files(self) -> int:
        return len(os.listdir(self._proc / "fd"))

    @property
    def sockets(self) -> int:
        return sum(target.startswith("socket:") for target in self._open_targets())

    @property
    def files_of_no_log(self) -> int:
        """The number of open files, without those of existing logs, which open and close on demand."""
        return sum(not target.endswith(LOG_FILES) for target in self._open_targets())

    def _open_targets(self) -> Iterator[str]:
        """Yields the paths of open files; that of a deleted file ends with ` (deleted)`."""
        for entry in os.listdir(self._proc / "fd"):
            with suppress(FileNotFoundError):  # closed in the meantime
                yield os.readlink(self._proc / "fd" / entry)
