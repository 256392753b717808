"""Requests with very long lists: Fetch, and every other API."""

from collections.abc import Iterator
from pathlib import Path

from tests.support.hostile.long_lists import Path as ArrayPath
from tests.support.hostile.long_lists import array_paths, long_request, served_apis

from bench.broker_sides import Side
from bench.broker_wire import Wire
from bench.hostile.attack import Attack, Row
from bench.hostile.well_behaved import TOPIC, WellBehavedClient
from headrace.broker.apis import Api
from headrace.protocol import encode_request
from headrace.protocol.apis import APIS, ApiKey
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest

RESPONSE_SECONDS = 180.0
ITEMS = 100_000
_FETCH_VERSION = 4  # the oldest one of Apache Kafka 4: the most items for the fewest bytes


def send(side: Side, frame: bytes) -> str:
    """Sends a request on a new connection, and returns the outcome."""
    with Wire(side.port, RESPONSE_SECONDS) as wire:
        try:
            response = wire.send(frame)
        except TimeoutError:
            return f"no response in {RESPONSE_SECONDS:g} s"
        except OSError:
            return "refused: connection closed"
    return f"response of {response.size / 1e6:.1f} MB"


class FetchPartitions(Attack):
    """One Fetch that names partitions that do not exist."""

    max_memory_mb = 300.0

    def __init__(self, partitions: int):
        self.name = f"one Fetch that names {partitions:,} partitions"
        self._partitions = partitions

    def prepare(self, side: Side) -> None:  # noqa: ARG002
        count = self._partitions // 100 if self.quick else self._partitions
        partitions = [FetchPartition(partition=number, partition_max_bytes=1) for number in range(1, count + 1)]
        topic = FetchTopic(topic=TOPIC, partitions=partitions)
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1, topics=[topic])
        self._frame = encode_request(request, _FETCH_VERSION, 1, "attacker")

    def run(self, side: Side) -> str:
        return send(side, self._frame)


class LongLists(Attack):
    """One request with very many items for each API, one after the other, to the same broker."""

    name = f"{ITEMS:,} items in one request of each API"
    max_memory_mb = 300.0
    peer = False  # Apache Kafka needs minutes for 100,000 names in a Metadata request

    def row_names(self) -> list[str]:
        return [_row_name(api, path) for api, path in _lists()]

    def rows(self, kind: type[Side], directory: Path) -> Iterator[Row]:
        side = kind(directory, self.properties)
        side.start()
        try:
            with WellBehavedClient(side.port) as client:
                for key_type in (0, 1):  # creates the internal topics
                    find = FindCoordinatorRequest(key="attacker", key_type=key_type)
                    send(side, encode_request(find, 2, 1, "attacker"))
                for api, path in _lists():
                    request = long_request(api.request, api.highest, path, ITEMS // 100 if self.quick else ITEMS)
                    frame = encode_request(request, api.highest, 1, "attacker")
                    del request
                    yield self.observe(_row_name(api, path), side, client, lambda frame=frame: send(side, frame))
        finally:
            side.stop()


def _lists() -> Iterator[tuple[Api, ArrayPath]]:
    """Yields a list of each API: its partitions, or its first list."""
    for api in served_apis():
        paths = list(array_paths(api.request, api.highest))
        of_partitions = [path for path in paths if path[-1].startswith("partition")]
        if paths:
            yield api, (of_partitions or paths)[0]


def _row_name(api: Api, path: ArrayPath) -> str:
    return f"{ITEMS:,} items: {APIS[ApiKey(api.key)].name} `{'.'.join(path)}`"
