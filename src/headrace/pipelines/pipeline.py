"""What a pipeline is: a function from source data frames to named output data frames. Driver only, no Spark import.

A `Pipeline` has one or more flows and names its outputs. A `Flow` is one streaming query:

    sources ──> prepare (streaming frames in, ONE streaming frame out; all stateful work)
                   └──> split, for each micro-batch (a plain frame in, {output name: frame} out)

Both steps are optional, but one must be there. Without `prepare`, `split` gets the rows of all sources of the flow.
Without `split`, the prepared frame goes to the flow's only output.

Frames of a source have the columns of `format("headrace")` (those that `Topic.columns` asks for) and `_at`, a number
that orders the rows of a source partition. What `split` returns for a topic has the columns

    value     bytes or text; a frame without it is made JSON of all its columns but those named here
    key       bytes or text, may be null; or `Topic.key` names the column that is the key
    topic     where a row goes, if the output leaves it open: `Topic(None)`. Otherwise not used
    headers   as in the source
    _at, _seq the place of the row's origin, and the place within it where a row became many: rows of one key are
              written in this order. A frame that has them keeps its order per key; they are not written.

The reserved output `dead_letters` takes rows that could not be used: `reason` and the columns of the source.

Invariant: a `split` is deterministic in its batch: replayed after a crash it returns the same rows.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.common.errors import HeadraceError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

AT = "_at"
SEQ = "_seq"
SOURCE = "_source"
"""Which source of its flow a row came from, in the batch of a flow that has several and no `prepare`."""
DEAD_LETTERS = "dead_letters"
"""The reserved output for rows that could not be used."""
SOURCE_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_OUTPUT_MODES = ("append", "update", "complete")

Setting: TypeAlias = str | int | float | bool


class PipelineError(HeadraceError):
    """A pipeline that cannot be defined, loaded or run as asked. The message is one line for the user."""


@dataclass(frozen=True)
class Topic:
    """A topic, as a source or as an output.

    As a source, `name` may list several with commas, or `pattern` is a regular expression of names. As an output,
    `name=None` leaves it to the column `topic` of each row.
    """

    name: str | None = None
    pattern: str | None = None
    """Source: a regular expression of topic names, instead of a name."""
    key: str | None = None
    """Output: the column that is the key, if the frame has no column `key`."""
    partitions: int | None = None
    """Output: how many partitions it is created with when it is not there; the broker's default otherwise."""
    columns: tuple[str, ...] = SOURCE_COLUMNS
    """Source: what to read. Columns that are not asked for are never decoded."""
    options: Mapping[str, str] = field(default_factory=dict)
    """More options of `format("headrace")`, for example `{"startingOffsets": "latest"}`; default is `earliest`."""


@dataclass(frozen=True)
class Table:
    """A Parquet table under the warehouse directory, partitioned by `day` and `hour` (UTC) of a time column."""

    name: str
    time: str
    """The column that day and hour are taken from: a timestamp, or a number of milliseconds since 1970."""


Output: TypeAlias = Topic | Table


@dataclass(frozen=True)
class Context:
    """What a flow's functions may know of the run."""

    spark: "SparkSession"
    pipeline: "Pipeline"
    flow: str
    settings: Mapping[str, Any]
    """The pipeline's settings, with what the run changed (`--set key=value`)."""
    bootstrap_servers: str
    state_dir: str
    """A directory of this flow, beside its checkpoint, for what the flow itself keeps between batches."""

    @property
    def dead_letters_topic(self) -> str | None:
        """Where dead letters go, if it is a topic: for a `split` that routes with a `topic` column."""
        return next((o.name for o in self.pipeline.outputs[DEAD_LETTERS] if isinstance(o, Topic)), None)


@dataclass(frozen=True)
class Batch(Context):
    """A micro-batch, as `split` sees it."""

    id: int
    query_id: str
    observed: list[Any] = field(default_factory=list, repr=False)
    persisted: list["DataFrame"] = field(default_factory=list, repr=False)
    figures: dict[str, int | float] = field(default_factory=dict)
    """What `split` itself has to tell, added to the metrics of the batch."""
    rows_by_topic: dict[str, int] = field(default_factory=dict)
    """What is written to topics, if `split` knows it. Else the runner has each row counted, which takes time."""

    def observe(self, frame: "DataFrame", **figures: "Column") -> "DataFrame":
        """The same frame, which counts while it is written: aggregates by name, added to the metrics of the batch."""
        from pyspark.sql import Observation

        observation = Observation()
        self.observed.append(observation)
        return frame.observe(observation, *(column.alias(name) for name, column in figures.items()))

    def keep(self, frame: "DataFrame") -> "DataFrame":
        """The same frame, computed once however often it is used in this batch, and forgotten after it."""
        self.persisted.append(frame.persist())
        return frame


_current: ContextVar["Batch | None"] = ContextVar("batch", default=None)


def current_batch() -> "Batch | None":
    """The batch whose `split` is running in this thread, if any."""
    return _current.get()


@contextmanager
def within(batch: "Batch") -> "Iterator[None]":
    """The block belongs to this batch; what the batch kept is forgotten after it."""
    token = _current.set(batch)
    try:
        yield
    finally:
        _current.reset(token)
        for frame in batch.persisted:
            frame.unpersist()


Frames: TypeAlias = "Mapping[str, DataFrame]"
Prepare: TypeAlias = "Callable[[Frames, Context], DataFrame]"
Split: TypeAlias = "Callable[[DataFrame, Batch], Frames]"


@dataclass(frozen=True)
class Flow:
    """One streaming query."""

    name: str
    sources: Mapping[str, Topic]
    prepare: "Prepare | None" = None
    split: "Split | None" = None
    output_mode: str = "append"
    ordered: bool = True
    """Rows are shuffled by key and sorted by `_at`, `_seq` before they are written to topics: order per key holds
    whatever the flow did before. A flow that never shuffles and writes one frame may switch it off."""


@dataclass(frozen=True)
class Pipeline:
    """Flows and where their outputs go."""

    name: str
    flows: tuple[Flow, ...]
    outputs: Mapping[str, tuple[Output, ...]]
    description: str = ""
    settings: Mapping[str, Setting] = field(default_factory=dict)
    """What a run may set with `--set`, with defaults, whose types the values must have."""

    @staticmethod
    def of(
        name: str,
        flows: Iterable[Flow],
        outputs: Mapping[str, Output | str | Sequence[Output]],
        *,
        description: str = "",
        settings: Mapping[str, Setting] | None = None,
    ) -> "Pipeline":
        """Checks and completes what is given: dead letters go to `<name>_dead_letters` unless said otherwise."""
        flows = tuple(flows)
        if not _NAME.fullmatch(name):
            raise PipelineError(f"pipeline name {name!r}: expected letters, digits, '-' and '_'")
        if not flows:
            raise PipelineError(f"pipeline {name}: no flows")
        for flow in flows:
            _check_flow(name, flow)
        names = [flow.name for flow in flows]
        if len(set(names)) < len(names):
            raise PipelineError(f"pipeline {name}: two flows have the same name: {', '.join(names)}")
        complete: dict[str, tuple[Output, ...]] = {}
        for output, places in {DEAD_LETTERS: f"{name.replace('-', '_')}_dead_letters", **outputs}.items():
            complete[output] = _places(name, output, places)
        for setting, default in (settings or {}).items():
            if type(default) not in _KINDS:
                raise PipelineError(
                    f"pipeline {name}: the default of setting {setting!r} is {default!r}: expected "
                    "text, a number, or true or false"
                )
        dead_letters = complete.pop(DEAD_LETTERS)
        if len(complete) != 1 and any(flow.split is None for flow in flows):
            raise PipelineError(f"pipeline {name}: a flow without split needs exactly one output, not {len(complete)}")
        complete[DEAD_LETTERS] = dead_letters
        return Pipeline(name, flows, complete, inspect.cleandoc(description), dict(settings or {}))

    @property
    def summary(self) -> str:
        """The first line of the description."""
        return self.description.partition("\n")[0]

    @property
    def topics(self) -> list[Topic]:
        """The topics that it writes, each once."""
        found = [place for places in self.outputs.values() for place in places if isinstance(place, Topic)]
        return list({topic.name: topic for topic in found if topic.name is not None}.values())

    @property
    def tables(self) -> list[Table]:
        return [place for places in self.outputs.values() for place in places if isinstance(place, Table)]


def chosen_settings(pipeline: Pipeline, given: Mapping[str, object]) -> dict[str, Setting]:
    """The pipeline's settings with what the run changes. Text takes the type of the default."""
    chosen = dict(pipeline.settings)
    for name, value in given.items():
        if name not in chosen:
            known = ", ".join(sorted(chosen)) or "none"
            raise PipelineError(f"pipeline {pipeline.name} has no setting {name!r}; it has: {known}")
        kind = type(chosen[name])
        try:
            chosen[name] = _setting(kind, value)
        except (TypeError, ValueError):
            raise PipelineError(f"setting {name}={value}: expected {_KINDS[kind]}") from None
    return chosen


_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def _setting(kind: type, value: object) -> Setting:
    if kind is bool:
        if str(value).lower() not in ("true", "false"):
            raise ValueError(value)
        return str(value).lower() == "true"
    if kind is int:
        return int(str(value))
    if kind is float:
        return float(str(value))
    return str(value)


def _check_flow(pipeline_name: str, flow: Flow) -> None:
    where = f"pipeline {pipeline_name}, flow {flow.name!r}"
    if not _NAME.fullmatch(flow.name):
        raise PipelineError(f"{where}: the name must have letters, digits, '-' and '_' only")
    if not flow.sources:
        raise PipelineError(f"{where}: no sources")
    if flow.prepare is None and flow.split is None:
        raise PipelineError(f"{where}: neither prepare nor split")
    if flow.output_mode not in _OUTPUT_MODES:
        raise PipelineError(f"{where}: output mode {flow.output_mode!r}: expected one of {', '.join(_OUTPUT_MODES)}")
    for source, topic in flow.sources.items():
        if (topic.name is None) == (topic.pattern is None):
            raise PipelineError(f"{where}, source {source!r}: give a topic name or a pattern, one of the two")
        if unknown := sorted(set(topic.columns) - {*SOURCE_COLUMNS, "timestampType", "headers"}):
            raise PipelineError(f"{where}, source {source!r}: no such columns: {', '.join(unknown)}")


def _places(pipeline_name: str, output: str, places: Output | str | Sequence[Output]) -> tuple[Output, ...]:
    if isinstance(places, str):
        places = Topic(places)
    found = (places,) if isinstance(places, Topic | Table) else tuple(places)
    where = f"pipeline {pipeline_name}, output {output!r}"
    if not found:
        raise PipelineError(f"{where}: goes nowhere")
    for place in found:
        if not isinstance(place, Topic | Table):
            raise PipelineError(f"{where}: {place!r} is neither a Topic nor a Table")
        if isinstance(place, Topic) and place.pattern is not None:
            raise PipelineError(f"{where}: a pattern is for sources; Topic(None) lets each row name its topic")
        if isinstance(place, Table) and not _NAME.fullmatch(place.name):
            raise PipelineError(f"{where}: table name {place.name!r}: expected letters, digits, '-' and '_'")
    return found


def pipeline(
    name: str | None = None,
    *,
    sources: Mapping[str, Topic | str],
    outputs: Mapping[str, Output | str | Sequence[Output]],
    stateful: bool = False,
    output_mode: str = "append",
    settings: Mapping[str, Setting] | None = None,
) -> Callable[[Callable[..., Any]], Pipeline]:
    """Makes a pipeline of a function whose parameters are named as its sources.

    The function gets each micro-batch as plain frames and returns frames by output name. With `stateful` it gets the
    streams themselves, once, and returns one streaming frame: for aggregations over time. A parameter `batch` (or
    `context`, if stateful) gets the `Batch` or `Context`.
    """

    def decorate(function: Callable[..., Any]) -> Pipeline:
        chosen = name or function.__name__.replace("_", "-")
        topics = {source: Topic(topic) if isinstance(topic, str) else topic for source, topic in sources.items()}
        extra = "context" if stateful else "batch"
        wanted = list(inspect.signature(function).parameters)
        if unknown := [parameter for parameter in wanted if parameter not in (*topics, extra)]:
            raise PipelineError(
                f"pipeline {chosen}: the function's parameter {unknown[0]!r} is none of its sources "
                f"({', '.join(topics)}), nor {extra!r}"
            )

        def call(frames: "Frames", context: Context) -> Any:
            given = {**frames, extra: context}
            return function(**{parameter: given[parameter] for parameter in wanted})

        def split(frame: "DataFrame", batch: Batch) -> "Frames":
            return _by_name(chosen, call(source_frames(frame, topics), batch))

        flow = Flow(
            chosen,
            topics,
            prepare=call if stateful else None,
            split=None if stateful else split,
            output_mode=output_mode,
        )
        return Pipeline.of(chosen, [flow], outputs, description=function.__doc__ or "", settings=settings)

    return decorate


def source_frames(frame: "DataFrame", sources: Mapping[str, Topic]) -> dict[str, "DataFrame"]:
    """The rows of each source, out of a batch of them all (the runner marks each row with its source)."""
    if len(sources) == 1:
        return {source: frame.drop(SOURCE) for source in sources}
    return {source: frame.where(frame[SOURCE] == source).drop(SOURCE) for source in sources}


def _by_name(name: str, returned: Any) -> "Frames":
    if not isinstance(returned, Mapping):
        raise PipelineError(
            f"pipeline {name}: the function returned {type(returned).__name__}, expected frames by output name"
        )
    return returned
