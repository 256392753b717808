import asyncio
from collections.abc import AsyncIterator

from headrace.console.events import Event, EventHub, encode_stream


def test_an_event_is_one_line_of_json() -> None:
    assert Event("tick", {"text": "a\nb"}).encode() == b'event: tick\ndata: {"text":"a\\nb"}\n\n'


def test_a_new_stream_begins_with_the_latest_events_and_skips_older_ones() -> None:
    async def run() -> None:
        hub = EventHub()
        hub.publish("status", 1)
        hub.publish("tick", 1)
        hub.publish("tick", 2)
        subscription = hub.subscribe()
        assert dict(await subscription.take()) == {"status": 1, "tick": 2}
        hub.publish("tick", 3)
        hub.publish("tick", 4)
        assert dict(await subscription.take()) == {"tick": 4}
        assert hub.streams == 1
        hub.unsubscribe(subscription)
        assert hub.streams == 0

    asyncio.run(run())


def test_a_stream_ends_with_its_events_or_when_the_console_stops() -> None:
    async def run() -> None:
        closed = []

        async def events(endless: bool) -> AsyncIterator[Event]:
            try:
                yield Event("a", 1)
                if endless:
                    await asyncio.Event().wait()
            finally:
                closed.append(endless)

        stopping = asyncio.Event()
        parts = [part async for part in encode_stream(events(False), stopping)]
        assert parts == [b"retry: 2000\n\n", b"event: a\ndata: 1\n\n"]
        parts = []
        async for part in encode_stream(events(True), stopping):
            parts.append(part)
            if len(parts) == 2:
                stopping.set()
        assert len(parts) == 2
        assert closed == [False, True]

    asyncio.run(run())
