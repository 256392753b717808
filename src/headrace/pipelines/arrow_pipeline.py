"""The decorator that turns a function into a pipeline with one Arrow flow. Driver only, no Spark import."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.pipelines.arrow_flow import ArrowFlow, ArrowRows, PartitionState, Task
from headrace.pipelines.pipeline import Output, Pipeline, PipelineError, Setting, Topic

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.pipelines.audit import Audit


def arrow_pipeline(
    name: str | None = None,
    *,
    sources: Mapping[str, Topic | str],
    outputs: Mapping[str, Output | str | Sequence[Output]],
    state: Callable[[Task], PartitionState] | None = None,
    shared: Callable[[Mapping[str, Setting]], Any] | None = None,
    settings: Mapping[str, Setting] | None = None,
    audit: "Audit | None" = None,
) -> Callable[[Callable[..., Any]], Pipeline]:
    """Returns a decorator that turns a function into a pipeline.

    The function receives records of one source partition as an Arrow record batch, and returns rows by output name. An
    optional second parameter receives the `Task`, which names the source and has the state.
    """

    def decorate(function: Callable[..., Any]) -> Pipeline:
        pipeline_name = name or function.__name__.replace("_", "-")
        topics = {source: Topic(topic) if isinstance(topic, str) else topic for source, topic in sources.items()}
        parameter_count = len(inspect.signature(function).parameters)
        if parameter_count not in (1, 2):
            raise PipelineError(
                f"pipeline {pipeline_name}: the function has {parameter_count} parameters; expected the records, "
                "and optionally the task"
            )

        def transform(records: "pa.RecordBatch", task: Task) -> ArrowRows:
            returned: ArrowRows = function(records, task) if parameter_count == 2 else function(records)
            return returned

        flow = ArrowFlow(pipeline_name, topics, transform, state, shared)
        description = function.__doc__ or ""
        return Pipeline.of(pipeline_name, [flow], outputs, description=description, settings=settings, audit=audit)

    return decorate
