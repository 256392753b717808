"""The definition of pipelines: checks and defaults, without Spark."""

from collections.abc import Callable
from typing import Any

import pytest

from headrace.pipelines import ArrowFlow, Flow, Pipeline, PipelineError, Table, Topic, pipeline
from headrace.pipelines.pipeline import current_batch, resolve_settings


def split(frame: Any, batch: Any) -> Any:
    return {}


def flow(name: str = "f", **more: Any) -> Flow:
    return Flow(name, **{"sources": {"s": Topic("s")}, "split": split, **more})


def arrow_flow(**more: Any) -> ArrowFlow:
    return ArrowFlow("f", **{"sources": {"s": Topic("s")}, "transform": split, **more})


def test_dead_letters_have_a_default_topic() -> None:
    defined = Pipeline.of("ods-dwd", [flow()], {"out": "there"}, description="\n  Does it.\n\n  More.\n")
    assert defined.outputs == {"out": (Topic("there"),), "dead_letters": (Topic("ods_dwd_dead_letters"),)}
    assert [topic.name for topic in defined.topics] == ["there", "ods_dwd_dead_letters"]
    assert defined.summary == "Does it."


def test_dead_letters_may_go_to_another_place() -> None:
    places = [Topic("bad"), Table("bad", time="timestamp")]
    defined = Pipeline.of("p", [flow()], {"out": "there", "dead_letters": places})
    assert defined.outputs["dead_letters"] == tuple(places)
    assert [table.name for table in defined.tables] == ["bad"]


def test_output_may_route_rows_by_topic_column() -> None:
    assert [topic.name for topic in Pipeline.of("p", [flow()], {"out": Topic(None)}).topics] == ["p_dead_letters"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Pipeline.of("a b", [flow()], {}), "pipeline name 'a b'"),
        (lambda: Pipeline.of("p", [], {}), "pipeline p has no flows"),
        (lambda: Pipeline.of("p", [flow(), flow()], {}), "two flows have the same name: f, f"),
        (lambda: Pipeline.of("p", [flow("x/y")], {}), "flow 'x/y': invalid flow name"),
        (lambda: Pipeline.of("p", [flow(sources={})], {}), "flow 'f': it has no sources"),
        (lambda: Pipeline.of("p", [flow(split=None)], {}), "expected prepare, split or both"),
        (lambda: Pipeline.of("p", [flow(output_mode="all")], {}), "output mode 'all': expected one of append, update"),
        (lambda: Pipeline.of("p", [flow(sources={"s": Topic()})], {}), "source 's': expected either a topic name"),
        (lambda: Pipeline.of("p", [flow(sources={"s": Topic("a", pattern="b")})], {}), "expected either a topic name"),
        (lambda: Pipeline.of("p", [flow(sources={"s": Topic("a", columns=("keys",))})], {}), "unknown columns: keys"),
        (lambda: Pipeline.of("p", [flow(sources={"s": Topic("a", parse=print)})], {}), "parse needs parsed_columns"),
        (
            lambda: Pipeline.of("p", [arrow_flow(sources={"s": Topic("a", parse=print)})], {}),
            "only flows of data frames",
        ),
        (lambda: Pipeline.of("p", [arrow_flow(shared={})], {}), "shared is {}; expected a function of the settings"),
        (lambda: Pipeline.of("p", [arrow_flow(sources={})], {}), "flow 'f': it has no sources"),
        (lambda: Pipeline.of("p", [arrow_flow(transform=None)], {}), "transform is None; expected a function"),
        (lambda: Pipeline.of("p", [arrow_flow(state={})], {}), "state is {}; expected a function that returns"),
        (
            lambda: Pipeline.of("p", [arrow_flow(sources={"a": Topic("t, u"), "b": Topic("u")})], {}),
            "two sources read the topic 'u'",
        ),
        (lambda: Pipeline.of("p", [flow()], {"out": []}), "output 'out': expected at least one topic"),
        (lambda: Pipeline.of("p", [flow()], {"out": [1]}), "1 is neither a Topic nor a Table"),  # type: ignore[list-item]
        (lambda: Pipeline.of("p", [flow()], {"out": Topic(pattern="x")}), "only sources may have a pattern"),
        (lambda: Pipeline.of("p", [flow()], {"out": Table("../x", time="t")}), "table name '../x'"),
        (lambda: Pipeline.of("p", [flow(split=None, prepare=split)], {"a": "a", "b": "b"}), "exactly one output"),
        (lambda: Pipeline.of("p", [flow()], {}, settings={"s": None}), "setting 's' has the default None"),  # type: ignore[dict-item]
    ],
)
def test_rejects_invalid_pipelines(make: Callable[[], Pipeline], message: str) -> None:
    with pytest.raises(PipelineError) as caught:
        make()
    assert message in str(caught.value)


def test_decorator_creates_a_pipeline() -> None:
    @pipeline(sources={"orders": "raw_orders"}, outputs={"paid": "paid"}, settings={"least": 1})
    def paid_orders(orders: Any) -> Any:
        """Paid orders."""
        return {"paid": orders}

    assert isinstance(paid_orders, Pipeline)
    assert (paid_orders.name, paid_orders.summary) == ("paid-orders", "Paid orders.")
    (only_flow,) = paid_orders.flows
    assert (only_flow.name, only_flow.sources, only_flow.prepare) == (
        "paid-orders",
        {"orders": Topic("raw_orders")},
        None,
    )


def test_rejects_unknown_parameters() -> None:
    with pytest.raises(PipelineError, match=r"unknown parameter 'refunds' .*: expected a source \(orders\) or 'batch'"):

        @pipeline("p", sources={"orders": "orders"}, outputs={"out": "out"})
        def refunds(refunds: Any) -> Any: ...

    with pytest.raises(PipelineError, match=r"parameter 'batch' .* or 'context'"):

        @pipeline("p", sources={"orders": "orders"}, outputs={"out": "out"}, stateful=True)
        def batches(orders: Any, batch: Any) -> Any: ...


def test_function_receives_the_parameters_it_names() -> None:
    frames = {"orders": "the orders", "refunds": "the refunds"}
    seen = []

    @pipeline("p", sources={"orders": "a", "refunds": "b"}, outputs={"out": "out"}, stateful=True)
    def asks(refunds: Any, context: Any) -> Any:
        seen.append((refunds, context))
        return refunds

    prepare = asks.flows[0].prepare
    assert prepare is not None
    assert prepare(frames, "the context") == "the refunds"  # type: ignore[arg-type, comparison-overlap]
    assert seen == [("the refunds", "the context")]


def test_rejects_results_that_are_not_frames_by_name() -> None:
    @pipeline("p", sources={"orders": "a"}, outputs={"out": "out"})
    def wrong() -> Any:
        return [1]

    class Frame:
        def drop(self, _: str) -> "Frame":
            return self

    split = wrong.flows[0].split
    assert split is not None
    with pytest.raises(PipelineError, match="returned list; expected frames by output name"):
        split(Frame(), None)  # type: ignore[arg-type]


def with_settings() -> Pipeline:
    settings = {"name": "x", "count": 1, "share": 0.5, "strict": False}
    return Pipeline.of("p", [flow()], {"out": "out"}, settings=settings)


def test_settings_are_converted_to_the_type_of_their_default() -> None:
    assert resolve_settings(with_settings(), {}) == {"name": "x", "count": 1, "share": 0.5, "strict": False}
    given = {"name": 7, "count": "12", "share": "0.25", "strict": "True"}
    assert resolve_settings(with_settings(), given) == {"name": "7", "count": 12, "share": 0.25, "strict": True}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"other": "1"}, "pipeline p has no setting 'other'; its settings: count, name, share, strict"),
        ({"count": "many"}, "setting count=many: expected a whole number"),
        ({"share": "half"}, "setting share=half: expected a number"),
        ({"strict": "yes"}, "setting strict=yes: expected true or false"),
    ],
)
def test_rejects_unknown_and_invalid_settings(given: dict[str, str], message: str) -> None:
    with pytest.raises(PipelineError) as caught:
        resolve_settings(with_settings(), given)
    assert str(caught.value) == message


def test_no_current_batch_outside_split() -> None:
    assert current_batch() is None


def test_both_kinds_of_flows_in_a_pipeline() -> None:
    flows = [flow("frames"), arrow_flow()]
    assert Pipeline.of("p", flows, {"a": "a", "b": "b"}).flows == tuple(flows)
