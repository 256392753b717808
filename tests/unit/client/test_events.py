"""The callbacks of clients."""

import asyncio
import logging
import threading
from typing import Any

import pytest

from headrace.client.config.consumer import CONSUMER_KEYS
from headrace.client.events import ClientEvents, LogEvent, ThrottleEvent
from headrace.common.errors import FencedInstanceIdError, KafkaError, NetworkExceptionError
from headrace.net.broker_pool import Node

NODE = Node(3, "host", 9092)


def make(**config: Any) -> ClientEvents:
    return ClientEvents(CONSUMER_KEYS.load(config))


def test_events_without_callbacks_are_ignored() -> None:
    events = make()
    events.error(KafkaError("x"))
    events.throttled(NODE, 1, 100)
    events.statistics("{}")
    events.start()
    events.stop()
    assert not events.wants_statistics
    assert events.throttled_total_ms == 100


def test_throttle_cb_receives_throttle_event() -> None:
    told: list[ThrottleEvent] = []
    make(throttle_cb=told.append).throttled(NODE, 1, 1500)
    assert told == [ThrottleEvent("host:9092/3", 3, 1.5)]


def test_unreachable_broker_is_reported_once() -> None:
    told: list[KafkaError] = []
    events = make(error_cb=told.append)
    first, second, third = (NetworkExceptionError(str(number)) for number in range(3))
    events.connect_failed(NODE, "", first)
    events.connect_failed(NODE, "", second)
    events.connected(NODE, "")
    events.disconnected(NODE, "", third)
    events.disconnected(NODE, "", None)
    events.connect_failed(NODE, "", second)
    assert told == [first, third, second]
    assert not any(error.fatal for error in told)


def test_fatal_error_is_marked() -> None:
    told: list[KafkaError] = []
    events = make(error_cb=told.append)
    events.error(FencedInstanceIdError("fenced"), fatal=True)
    events.error(KafkaError("later"))
    assert [error.fatal for error in told] == [True, False]
    assert events.fatal is told[0]


def test_failing_callback_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    make(error_cb=lambda error: 1 / 0).error(KafkaError("x"))
    assert "callback" in caplog.text


def test_log_cb_receives_lines_of_its_own_thread() -> None:
    told: list[LogEvent] = []
    events = make(log_cb=told.append)
    events.start()
    try:
        logger = logging.getLogger("headrace.client.group.consumer_coordinator")
        logger.warning("one %d", 1)
        logging.getLogger("headrace.broker").warning("not a client's")
        other = threading.Thread(target=lambda: logger.warning("another client's"))
        other.start()
        other.join()
    finally:
        events.stop()
    logging.getLogger("headrace.client").warning("after the end")
    assert told == [LogEvent(logging.WARNING, "client.group.consumer_coordinator", "one 1")]


def test_unreachable_bootstrap_servers_are_logged_once_per_interval(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        events = make(bootstrap_servers=["a:1", "b:2"], client_id="billing")
        first, second = Node(-1, "a", 1), Node(-2, "b", 2)
        events.connect_failed(first, "", KafkaError("could not connect to a:1: Connection refused"))
        assert warnings() == [], "the other server may be reachable"
        for _ in range(3):
            events.connect_failed(second, "", KafkaError("could not connect to b:2: Connection refused"))
        assert warnings() == [
            "Client billing: none of the bootstrap servers (a:1, b:2) is reachable, retrying: could not connect to "
            "b:2: Connection refused"
        ]
        events._next_warning = asyncio.get_running_loop().time()
        events.connect_failed(first, "", KafkaError("still down"))
        assert len(warnings()) == 2
        events.connected(first, "")
        events.connect_failed(second, "", KafkaError("one is up"))
        events.connect_failed(Node(7, "c", 3), "", KafkaError("no bootstrap server"))
        assert len(warnings()) == 2

    def warnings() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]

    asyncio.run(main())
