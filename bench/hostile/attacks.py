"""The attacks of the benchmark, in the order of its table."""

from bench.hostile.attack import Attack
from bench.hostile.compressed import Inflating
from bench.hostile.connections import NewConnections, StalledRequests
from bench.hostile.disks import FewFiles, ForeignDirectory, FullDisk, ManyPartitionsStop
from bench.hostile.long_lists import FetchPartitions, LongLists
from bench.hostile.topic_creation import UnknownTopics
from headrace.records import Compression

ATTACKS: list[Attack] = [
    FetchPartitions(1_000_000),
    FetchPartitions(100_000),
    LongLists(),
    StalledRequests(),
    Inflating(Compression.ZSTD, 200),
    Inflating(Compression.ZSTD, 2000),
    Inflating(Compression.GZIP, 200),
    UnknownTopics(),
    NewConnections(10_000),
    FewFiles(),
    ManyPartitionsStop(),
    ForeignDirectory(),
    FullDisk(),
]
