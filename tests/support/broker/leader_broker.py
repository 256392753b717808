"""A leader for tests of followers: the real handlers on real logs, called without sockets."""

import asyncio
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from types import GeneratorType, SimpleNamespace
from typing import Any

from tests.support.broker.replicas import NODE, TOPIC_ID, Replicas

from headrace.broker import handlers
from headrace.broker.apis import DEFERRED, REGISTRY
from headrace.broker.config.broker import BrokerConfig
from headrace.broker.fetch_sessions import FetchSessionCache
from headrace.cluster.commands import BrokerInfo, PartitionState, UpdateMetadata
from headrace.cluster.metadata_image import MetadataImage
from headrace.common.errors import KafkaError
from headrace.common.ids import make_random
from headrace.net.errors import KafkaConnectionError
from headrace.protocol import Message, decode, encode
from headrace.protocol.messages.fetch import FetchRequest, FetchResponse
from headrace.storage.fetch_slice import FetchSlice


class LeaderBroker:
    """Broker NODE, which others reach with `send`. Close it, or use it in a `with` block."""

    def __init__(self, directory: Path, **topic_properties: object):
        handlers.load()
        self.replicas = Replicas(directory, **topic_properties)
        self.config = BrokerConfig.from_properties({"node.id": NODE})
        self.image = MetadataImage()
        self.fetch_sessions = FetchSessionCache(100, self.replicas.clock, make_random(1))
        self.batch_inflater = None
        self.requests: list[tuple[Message, int]] = []
        """The requests and their versions."""
        self.failures: deque[KafkaError] = deque()
        """The next requests fail with these errors."""
        self.is_reachable = True

    def __enter__(self) -> "LeaderBroker":
        return self

    def __exit__(self, *_: object) -> None:
        self.replicas.manager.close()

    def update(self, states: Iterable[PartitionState]) -> None:
        """Applies roles, and puts them into the metadata image."""
        states = list(states)
        assert set(self.replicas.apply(*states).values()) == {0}
        self.image.apply(UpdateMetadata(NODE, 1, 1, [BrokerInfo(NODE)], states))

    def fetches(self) -> list[FetchRequest]:
        return [request for request, _ in self.requests if isinstance(request, FetchRequest)]

    async def send(
        self,
        broker_id: int,
        request: Message,
        *,
        purpose: str = "",
        timeout_ms: float | None = None,
        min_version: int | None = None,
        max_version: int | None = None,
    ) -> Any:
        """Handles a request that is encoded and decoded as over a network."""
        await asyncio.sleep(0)
        if broker_id != NODE or not self.is_reachable:
            raise KafkaConnectionError(f"broker {broker_id} cannot be reached ({purpose})")
        if self.failures:
            raise self.failures.popleft()
        api = REGISTRY[type(request).__api_key__]
        version = min(api.highest, api.highest if max_version is None else max_version)
        received = decode(type(request), version, bytearray(encode(request, version)))
        self.requests.append((received, version))
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        response = self._handle(api, received, version, answer)
        if response is DEFERRED:
            response = await answer
        if isinstance(response, FetchResponse):
            _read_slices(response)
        return decode(type(response), version, bytearray(encode(response, version)))

    def _handle(self, api: Any, request: Message, version: int, answer: "asyncio.Future[Message]") -> Any:
        def wait(operation: Any, purgatory: Any, keys: Any) -> Any:
            asyncio.get_running_loop().call_later(operation.timeout_ms / 1000, operation.force_complete)
            purgatory.try_complete_else_watch(operation, keys)
            return DEFERRED

        context = SimpleNamespace(
            api_version=version,
            connection=SimpleNamespace(listener_name="PLAINTEXT"),
            is_long=False,
            has_quota=False,
            authorizer=None,
            turn_is_over=lambda: False,
            reply=answer.set_result,
            wait=wait,
        )
        response = api.bind(self).handler(request, context)
        if not isinstance(response, GeneratorType):
            return response
        while True:
            try:
                next(response)
            except StopIteration as stop:
                return stop.value


def _read_slices(response: FetchResponse) -> None:
    for topic in response.responses:
        assert topic.topic_id in (TOPIC_ID, type(TOPIC_ID)(int=0))
        for data in topic.partitions:
            if isinstance(data.records, FetchSlice):
                data.records = bytes(data.records.read())
