"""Metrics as text for Prometheus, with prometheus_client.

The text is built by one family at a time, with a short sleep after each: a broker's event loop runs in the same process
and needs the GIL.
"""

import asyncio
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

_GIVE_WAY_SECONDS = 0.0005
_EOF = b"# EOF\n"
"""The end of an OpenMetrics text, which stands only once."""


class _Families(Collector):
    """A registry of some families."""

    def __init__(self, families: list[Metric]):
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


_process = CollectorRegistry()
for _collector in (ProcessCollector, GCCollector, PlatformCollector):
    _collector(registry=_process)


def process_families() -> Iterator[Metric]:
    """Yields metrics of this process: memory, processor time, open files, garbage collections."""
    yield from _process.collect()


async def render(families: Iterable[Metric], accept: str) -> tuple[str, bytes]:
    """Returns the content type and the text, in the format that an Accept header asks for."""
    encoder, content_type = choose_encoder(accept)
    parts: list[bytes] = []
    for family in families:
        text = encoder(_Families([family]))
        parts.append(text.removesuffix(_EOF))
        await asyncio.sleep(_GIVE_WAY_SECONDS)
    if content_type.startswith("application/openmetrics-text"):
        parts.append(_EOF)
    return content_type, b"".join(parts)


def encode(families: Iterable[Metric], accept: str) -> tuple[str, bytes]:
    """Does the same at once, for programs without an event loop that waits."""
    encoder, content_type = choose_encoder(accept)
    return content_type, encoder(_Families(list(families)))
