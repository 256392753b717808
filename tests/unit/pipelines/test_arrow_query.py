"""Which sources of an Arrow flow share a stream."""

from headrace.pipelines import Topic
from headrace.pipelines.arrow_query import source_streams

OPTIONS = {"kafka.bootstrap.servers": "x:1", "maxOffsetsPerTrigger": "100"}


def test_sources_with_equal_options_share_a_stream() -> None:
    (stream,) = source_streams({"a": Topic("t"), "b": Topic("u,v", columns=("value",))}, OPTIONS)
    assert list(stream.sources) == ["a", "b"]
    assert stream.options["subscribe"] == "t,u,v"
    assert stream.options["maxOffsetsPerTrigger"] == "200", "100 for each source"
    assert stream.options["startingOffsets"] == "earliest"


def test_patterns_and_other_options_have_their_own_stream() -> None:
    sources = {
        "a": Topic("t"),
        "p": Topic(pattern="p.*"),
        "late": Topic("u", options={"startingOffsets": "latest"}),
        "b": Topic("v"),
    }
    streams = source_streams(sources, OPTIONS)
    assert [list(stream.sources) for stream in streams] == [["a", "b"], ["p"], ["late"]]
    assert streams[1].options["subscribePattern"] == "p.*"
    assert streams[2].options["startingOffsets"] == "latest"
    assert streams[2].options["maxOffsetsPerTrigger"] == "100"
