"""The definition of a pipeline: a function from source frames to named output frames. Driver only, no Spark import.

A `Pipeline` has one or more flows and names its outputs. A flow is one streaming query. There are two kinds: an
`ArrowFlow` (see `arrow_flow`) and a `Flow`, which transforms data frames:

    sources ──> prepare (streaming frames in, ONE streaming frame out; all stateful work)
                   └──> split, for each micro-batch (a plain frame in, {output name: frame} out)

Both steps are optional, but a flow needs at least one. Without `prepare`, `split` receives the rows of all sources of
the flow. Without `split`, the prepared frame goes to the flow's only output.

Source frames have the columns of `format("headrace")` that `Topic.columns` selects, and `_at`, a number that orders the
rows of a source partition. A frame that `split` returns for a topic has these columns:

    value     bytes or text (without this column, the value is a JSON object of all columns not listed here)
    key       bytes or text, may be null; `Topic.key` may name another column
    topic     the topic of the row, only for `Topic(None)`
    headers   as in the source
    _at, _seq the position of the row's source record, and the row's position among the rows of that record. Rows of a
              key are written in this order. The two columns are not written.

The reserved output `dead_letters` receives invalid rows: `reason` and the columns of the source.

Invariant: `split` is deterministic. It returns the same rows for a replayed batch.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.common.errors import HeadraceError
from headrace.pipelines.arrow_flow import ArrowFlow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from headrace.pipelines.audit import Audit

AT = "_at"
SEQ = "_seq"
SOURCE = "_source"
"""The name of a row's source, in batches of flows with several sources and no `prepare`."""
DEAD_LETTERS = "dead_letters"
"""The reserved output for invalid rows."""
SOURCE_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_OUTPUT_MODES = ("append", "update", "complete")

Setting: TypeAlias = str | int | float | bool


class PipelineError(HeadraceError):
    """A pipeline cannot be defined, loaded or run. The message is one line for the user."""


@dataclass(frozen=True)
class Topic:
    """A topic, as a source or as an output.

    As a source, `name` lists one or more topics, separated by commas, or `pattern` is a regular expression for topic
    names. As an output, `name=None` routes each row by its column `topic`.
    """

    name: str | None = None
    pattern: str | None = None
    """Source: a regular expression for topic names, instead of a name."""
    key: str | None = None
    """Output: the column to use as the key, if it is not named `key`."""
    partitions: int | None = None
    """Output: the number of partitions if the topic must be created; None for the broker's default."""
    columns: tuple[str, ...] = SOURCE_COLUMNS
    """Source: the columns to read. Other columns are never decoded."""
    options: Mapping[str, str] = field(default_factory=dict)
    """More options of `format("headrace")`, for example `{"startingOffsets": "latest"}` (default: `earliest`)."""
    parse: "Parse | None" = None
    """Source of a `Flow`: changes record batches in the worker that fetched them, before they become rows of the JVM.
    It gets a batch with `columns` and the settings of the run, and returns a batch with `parsed_columns`."""
    parsed_columns: str = ""
    """The columns that `parse` returns, as a SQL schema."""


@dataclass(frozen=True)
class Table:
    """A Parquet table under the warehouse directory, partitioned by `day` and `hour` (UTC) of a time column."""

    name: str
    time: str
    """The column that determines day and hour: a timestamp, or milliseconds since 1970."""


Output: TypeAlias = Topic | Table


@dataclass(frozen=True)
class Context:
    """The run, as the functions of a flow see it."""

    spark: "SparkSession"
    pipeline: "Pipeline"
    flow: str
    settings: Mapping[str, Any]
    """The pipeline's settings, with the values given for this run (`--set key=value`)."""
    bootstrap_servers: str
    state_dir: str
    """A directory next to the flow's checkpoint, for state that the flow itself keeps between batches."""

    @property
    def dead_letters_topic(self) -> str | None:
        """The topic of the dead letters, or None if they go to a table."""
        return next((o.name for o in self.pipeline.outputs[DEAD_LETTERS] if isinstance(o, Topic)), None)


@dataclass(frozen=True)
class Batch(Context):
    """A micro-batch, as `split` sees it."""

    id: int
    query_id: str
    observed: list[Any] = field(default_factory=list, repr=False)
    persisted: list["DataFrame"] = field(default_factory=list, repr=False)
    figures: dict[str, int | float] = field(default_factory=dict)
    """Numbers that `split` adds to the metrics of the batch."""
    rows_by_topic: dict[str, int] = field(default_factory=dict)
    """The number of rows written to each topic, if `split` knows it. Otherwise the runner counts every row."""
    records_read: dict[str, int] = field(default_factory=dict)
    """The number of records read by source, if `Topic.parse` returns another number of rows and `split` knows it."""

    def observe(self, frame: "DataFrame", **figures: "Column") -> "DataFrame":
        """Returns the frame with aggregates that are computed while it is written, and added to the batch's metrics."""
        from pyspark.sql import Observation

        observation = Observation()
        self.observed.append(observation)
        return frame.observe(observation, *(column.alias(name) for name, column in figures.items()))

    def keep(self, frame: "DataFrame") -> "DataFrame":
        """Caches the frame until the end of the batch, so that it is computed only once. Returns the frame."""
        self.persisted.append(frame.persist())
        return frame


AnyFlow: TypeAlias = "Flow | ArrowFlow"

_current: ContextVar["Batch | None"] = ContextVar("batch", default=None)


def current_batch() -> "Batch | None":
    """Returns the batch whose `split` is running in this thread, or None."""
    return _current.get()


@contextmanager
def batch_scope(batch: "Batch") -> "Iterator[None]":
    """Makes this the current batch for the block, and releases the frames that it cached at the end."""
    token = _current.set(batch)
    try:
        yield
    finally:
        _current.reset(token)
        for frame in batch.persisted:
            frame.unpersist()


Parse: TypeAlias = "Callable[[pa.RecordBatch, Mapping[str, Setting]], pa.RecordBatch]"
Frames: TypeAlias = "Mapping[str, DataFrame]"
Prepare: TypeAlias = "Callable[[Frames, Context], DataFrame]"
Split: TypeAlias = "Callable[[DataFrame, Batch], Frames]"


@dataclass(frozen=True)
class Flow:
    """One streaming query of a pipeline."""

    name: str
    sources: Mapping[str, Topic]
    prepare: "Prepare | None" = None
    split: "Split | None" = None
    output_mode: str = "append"
    ordered: bool = True
    """Shuffle rows by key and sort them by `_at`, `_seq` before they are written to topics. This keeps the order per
    key whatever the flow did before. A flow that never shuffles and writes only one frame may turn it off."""


@dataclass(frozen=True)
class Pipeline:
    """A named set of flows, and the topics and tables of their outputs."""

    name: str
    flows: tuple[AnyFlow, ...]
    outputs: Mapping[str, tuple[Output, ...]]
    description: str = ""
    settings: Mapping[str, Setting] = field(default_factory=dict)
    """The settings that a run may change with `--set`, with their defaults. A value must have the type of the
    default."""
    audit: "Audit | None" = None
    """Where events have their ids, for `headrace pipeline audit`."""

    @staticmethod
    def of(
        name: str,
        flows: Iterable[AnyFlow],
        outputs: Mapping[str, Output | str | Sequence[Output]],
        *,
        description: str = "",
        settings: Mapping[str, Setting] | None = None,
        audit: "Audit | None" = None,
    ) -> "Pipeline":
        """Validates and creates a pipeline. Dead letters go to the topic `<name>_dead_letters`, with `_` for `-`, if
        `outputs` names no other place."""
        flows = tuple(flows)
        if not _NAME.fullmatch(name):
            raise PipelineError(f"invalid pipeline name {name!r}: expected letters, digits, '-' and '_'")
        if not flows:
            raise PipelineError(f"pipeline {name} has no flows")
        for flow in flows:
            _check_flow(name, flow)
        names = [flow.name for flow in flows]
        if len(set(names)) < len(names):
            raise PipelineError(f"pipeline {name}: two flows have the same name: {', '.join(names)}")
        complete: dict[str, tuple[Output, ...]] = {}
        for output, places in {DEAD_LETTERS: f"{name.replace('-', '_')}_dead_letters", **outputs}.items():
            complete[output] = _places(name, output, places)
        for setting, default in (settings or {}).items():
            if type(default) not in _TYPE_NAMES:
                raise PipelineError(
                    f"pipeline {name}: setting {setting!r} has the default {default!r}: expected "
                    "text, a number, True or False"
                )
        dead_letters = complete.pop(DEAD_LETTERS)
        if len(complete) != 1 and any(isinstance(flow, Flow) and flow.split is None for flow in flows):
            raise PipelineError(
                f"pipeline {name}: a flow without split needs exactly one output; the pipeline has {len(complete)}"
            )
        complete[DEAD_LETTERS] = dead_letters
        return Pipeline(name, flows, complete, inspect.cleandoc(description), dict(settings or {}), audit)

    @property
    def summary(self) -> str:
        """Returns the first line of the description."""
        return self.description.partition("\n")[0]

    @property
    def topics(self) -> list[Topic]:
        """The topics that the pipeline writes, without repetition."""
        topics = [place for places in self.outputs.values() for place in places if isinstance(place, Topic)]
        return list({topic.name: topic for topic in topics if topic.name is not None}.values())

    @property
    def tables(self) -> list[Table]:
        return [place for places in self.outputs.values() for place in places if isinstance(place, Table)]


def resolve_settings(pipeline: Pipeline, values: Mapping[str, object]) -> dict[str, Setting]:
    """Returns the pipeline's settings with the values given for this run. Text is converted to the type of the
    default."""
    settings = dict(pipeline.settings)
    for name, value in values.items():
        if name not in settings:
            setting_names = ", ".join(sorted(settings)) or "none"
            raise PipelineError(f"pipeline {pipeline.name} has no setting {name!r}; its settings: {setting_names}")
        kind = type(settings[name])
        try:
            settings[name] = _convert(kind, value)
        except (TypeError, ValueError):
            raise PipelineError(f"setting {name}={value}: expected {_TYPE_NAMES[kind]}") from None
    return settings


_TYPE_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def _convert(kind: type, value: object) -> Setting:
    if kind is bool:
        if str(value).lower() not in ("true", "false"):
            raise ValueError(value)
        return str(value).lower() == "true"
    if kind is int:
        return int(str(value))
    if kind is float:
        return float(str(value))
    return str(value)


def _check_flow(pipeline_name: str, flow: AnyFlow) -> None:
    where = f"pipeline {pipeline_name}, flow {flow.name!r}"
    if not _NAME.fullmatch(flow.name):
        raise PipelineError(f"{where}: invalid flow name: expected letters, digits, '-' and '_'")
    if not flow.sources:
        raise PipelineError(f"{where}: it has no sources")
    if isinstance(flow, ArrowFlow):
        _check_arrow_flow(where, flow)
    else:
        _check_data_frame_flow(where, flow)
    for source, topic in flow.sources.items():
        if (topic.name is None) == (topic.pattern is None):
            raise PipelineError(f"{where}, source {source!r}: expected either a topic name or a pattern")
        if unknown := sorted(set(topic.columns) - {*SOURCE_COLUMNS, "timestampType", "headers"}):
            raise PipelineError(f"{where}, source {source!r}: unknown columns: {', '.join(unknown)}")
        if topic.parse is not None and isinstance(flow, ArrowFlow):
            raise PipelineError(f"{where}, source {source!r}: only flows of data frames may have parse")
        if topic.parse is not None and not topic.parsed_columns:
            raise PipelineError(f"{where}, source {source!r}: parse needs parsed_columns, a SQL schema")


def _check_data_frame_flow(where: str, flow: Flow) -> None:
    if flow.prepare is None and flow.split is None:
        raise PipelineError(f"{where}: expected prepare, split or both; it has neither")
    if flow.output_mode not in _OUTPUT_MODES:
        raise PipelineError(
            f"{where}: invalid output mode {flow.output_mode!r}: expected one of {', '.join(_OUTPUT_MODES)}"
        )


def _check_arrow_flow(where: str, flow: ArrowFlow) -> None:
    if not callable(flow.transform):
        raise PipelineError(f"{where}: transform is {flow.transform!r}; expected a function")
    if flow.state is not None and not callable(flow.state):
        raise PipelineError(f"{where}: state is {flow.state!r}; expected a function that returns an empty state")
    if flow.shared is not None and not callable(flow.shared):
        raise PipelineError(f"{where}: shared is {flow.shared!r}; expected a function of the settings")
    topics = [name.strip() for topic in flow.sources.values() for name in (topic.name or "").split(",") if name.strip()]
    if repeated := sorted({name for name in topics if topics.count(name) > 1}):
        raise PipelineError(f"{where}: two sources read the topic {repeated[0]!r}; expected each topic once")


def _places(pipeline_name: str, output: str, places: Output | str | Sequence[Output]) -> tuple[Output, ...]:
    if isinstance(places, str):
        places = Topic(places)
    checked = (places,) if isinstance(places, Topic | Table) else tuple(places)
    where = f"pipeline {pipeline_name}, output {output!r}"
    if not checked:
        raise PipelineError(f"{where}: expected at least one topic or table")
    for place in checked:
        if not isinstance(place, Topic | Table):
            raise PipelineError(f"{where}: {place!r} is neither a Topic nor a Table")
        if isinstance(place, Topic) and place.pattern is not None:
            raise PipelineError(
                f"{where}: only sources may have a pattern; use Topic(None) to route each row by its column 'topic'"
            )
        if isinstance(place, Table) and not _NAME.fullmatch(place.name):
            raise PipelineError(f"{where}: invalid table name {place.name!r}: expected letters, digits, '-' and '_'")
    return checked


def pipeline(
    name: str | None = None,
    *,
    sources: Mapping[str, Topic | str],
    outputs: Mapping[str, Output | str | Sequence[Output]],
    stateful: bool = False,
    output_mode: str = "append",
    settings: Mapping[str, Setting] | None = None,
    audit: "Audit | None" = None,
) -> Callable[[Callable[..., Any]], Pipeline]:
    """Returns a decorator that turns a function into a pipeline. The function's parameters are named like its sources.

    The function receives each micro-batch as plain frames and returns frames by output name. With `stateful` it is
    called once with the streams and returns one streaming frame, for example an aggregation over time. A parameter
    `batch` (or `context`, if stateful) receives the `Batch` or `Context`.
    """

    def decorate(function: Callable[..., Any]) -> Pipeline:
        pipeline_name = name or function.__name__.replace("_", "-")
        topics = {source: Topic(topic) if isinstance(topic, str) else topic for source, topic in sources.items()}
        extra = "context" if stateful else "batch"
        parameters = list(inspect.signature(function).parameters)
        if unknown := [parameter for parameter in parameters if parameter not in (*topics, extra)]:
            raise PipelineError(
                f"pipeline {pipeline_name}: unknown parameter {unknown[0]!r} of the function: expected a source "
                f"({', '.join(topics)}) or {extra!r}"
            )

        def call(frames: "Frames", context: Context) -> Any:
            arguments = {**frames, extra: context}
            return function(**{parameter: arguments[parameter] for parameter in parameters})

        def split(frame: "DataFrame", batch: Batch) -> "Frames":
            return _check_frames(pipeline_name, call(source_frames(frame, topics), batch))

        flow = Flow(
            pipeline_name,
            topics,
            prepare=call if stateful else None,
            split=None if stateful else split,
            output_mode=output_mode,
        )
        description = function.__doc__ or ""
        return Pipeline.of(pipeline_name, [flow], outputs, description=description, settings=settings, audit=audit)

    return decorate


def source_frames(frame: "DataFrame", sources: Mapping[str, Topic]) -> dict[str, "DataFrame"]:
    """Returns the rows of each source of a batch. The runner marks each row with its source."""
    if len(sources) == 1:
        return {source: frame.drop(SOURCE) for source in sources}
    return {source: frame.where(frame[SOURCE] == source).drop(SOURCE) for source in sources}


def _check_frames(name: str, returned: Any) -> "Frames":
    if not isinstance(returned, Mapping):
        raise PipelineError(
            f"pipeline {name}: the function returned {type(returned).__name__}; expected frames by output name"
        )
    return returned
