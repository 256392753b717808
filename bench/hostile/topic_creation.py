"""Metadata requests that create topics."""

import time

from bench.broker_sides import Side
from bench.broker_wire import Wire
from bench.hostile.attack import Attack
from bench.hostile.long_lists import RESPONSE_SECONDS
from headrace.protocol import encode_request
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

_VERSION = 4  # the first one with a flag that allows the creation
_ROUNDS = 10
_SECONDS_BETWEEN = 0.5


class UnknownTopics(Attack):
    """A client that requests the metadata of 20,000 topics that do not exist, and repeats the request."""

    name = f"Metadata of 20,000 unknown topics, {_ROUNDS} times in {_ROUNDS * _SECONDS_BETWEEN:g} s"
    properties = {"auto.create.topics.enable": "true"}  # noqa: RUF012
    max_memory_mb = 100.0

    def run(self, side: Side) -> str:
        count, rounds = (200, 2) if self.quick else (20_000, _ROUNDS)
        names = [MetadataRequestTopic(name=f"unknown-{number}") for number in range(count)]
        frame = encode_request(MetadataRequest(topics=names, allow_auto_topic_creation=True), _VERSION, 1, "attacker")
        with Wire(side.port, RESPONSE_SECONDS) as wire:
            before = _count_topics(wire)
            for _ in range(rounds):
                wire.send(frame)
                time.sleep(_SECONDS_BETWEEN)
            return f"{_count_topics(wire) - before:,} topics created"


def _count_topics(wire: Wire) -> int:
    response = wire.send(encode_request(MetadataRequest(topics=None), 1, 1, "attacker"))
    for _ in response.each():
        response.number("i"), response.text(), response.number("i"), response.text()
    response.number("i")  # the controller
    return response.number("i")
