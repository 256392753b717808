"""A simulated shop that writes the ODS topics: `headrace datagen`. See docs/datagen.md.

from headrace.shop.datagen import StreamSettings, generate

generated = generate("localhost:9092", StreamSettings(events=100_000, span_ms=3_600_000), rate=5_000)
"""

from headrace.shop.datagen.sending import create_topics, generate
from headrace.shop.datagen.stream import EventStream, GeneratedEvents, StreamSettings

__all__ = ["EventStream", "GeneratedEvents", "StreamSettings", "create_topics", "generate"]
