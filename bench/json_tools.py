"""Which tool reads the shop's events best: microseconds per event on one core, and what happens to bad rows.

    POLARS_MAX_THREADS=1 python -m bench.json_tools

Reads app events of about 1 KB into the typed columns of `ods-dwd`. The last two lines are the whole transformation of
`ods-dwd`, with validation, deduplication and the JSON of all rows. Prints a table for bench/results/json-tools.md.
"""

import io
import json
import time
from collections.abc import Callable

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.json as pj
from tests.support.shop.arrow_run import ArrowRun, record_batch

from headrace.pipelines.json_columns import read_json
from headrace.shop import schemas
from headrace.shop.datagen.stream import EventStream, StreamSettings
from headrace.shop.datagen.visits import DB, LOG
from headrace.shop.log import event_schema
from headrace.shop.ods_dwd import ods_dwd

EVENTS = 20_000
CHUNK = 2500
ROUNDS = 5
BAD_ROWS = (b"not JSON", b'{"event_id":"x","ts":"yesterday"}')
Tool = Callable[[list[bytes]], object]


def read_with_headrace(values: list[bytes]) -> pa.StructArray:
    return read_json(pa.array(values, pa.binary()), event_schema(), lambda _: "not plain JSON").columns


def read_with_pyarrow(values: list[bytes]) -> pa.Table:
    options = pj.ParseOptions(explicit_schema=_without_metadata(), unexpected_field_behavior="ignore")
    reading = pj.ReadOptions(use_threads=False, block_size=1 << 24)
    return pj.read_json(io.BytesIO(b"\n".join(values)), reading, options)


def read_with_polars(values: list[bytes]) -> pl.Series:
    kind = pl.Series(pa.array([], pa.struct(list(_without_metadata())))).dtype
    return pl.Series(values, dtype=pl.Binary).cast(pl.String).str.json_decode(kind)


def read_with_duckdb(values: list[bytes]) -> pa.Table:
    events = pa.table({"value": pa.array(values, pa.binary()).cast(pa.string(), safe=False)})
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    connection.register("events", events)
    kind = (
        f"STRUCT(event_id VARCHAR, ts BIGINT, common STRUCT({', '.join(f'{name} VARCHAR' for name in _COMMON)}), "
        f"start STRUCT({_duckdb(schemas.START)}), page STRUCT({_duckdb(schemas.PAGE)}), "
        f"displays STRUCT({_duckdb(schemas.DISPLAY)})[], actions STRUCT({_duckdb(schemas.ACTION)})[], "
        f"err STRUCT({_duckdb(schemas.ERROR)}))"
    )
    return connection.sql(f"SELECT TRY_CAST(value::JSON AS {kind}) AS event FROM events").to_arrow_table()


def read_with_python(values: list[bytes]) -> pa.Array:
    return pa.array([json.loads(value) for value in values], pa.struct(list(_without_metadata())))


_COMMON = (*schemas.COMMON_FIELDS, "is_new")
TOOLS: dict[str, Tool] = {
    "Headrace's reader": read_with_headrace,
    "pyarrow.json": read_with_pyarrow,
    "Polars json_decode": read_with_polars,
    "DuckDB SQL": read_with_duckdb,
    "Python's json": read_with_python,
}


def _without_metadata() -> pa.Schema:
    def plain(field: pa.Field) -> pa.Field:
        kind = field.type
        if pa.types.is_struct(kind):
            kind = pa.struct([plain(kind.field(number)) for number in range(kind.num_fields)])
        elif pa.types.is_list(kind):
            kind = pa.list_(plain(kind.value_field).type)
        return pa.field(field.name, kind)

    return pa.schema([plain(field) for field in event_schema()])


def _duckdb(schema: str) -> str:
    return schema.replace("STRING", "VARCHAR").replace("`", '"')


def best_time(work: Callable[[], object]) -> float:
    """Returns the shortest of several CPU times in seconds."""
    times = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return min(times)


def behavior_with_bad_rows(read: Tool, value: bytes) -> str:
    """Says what a tool does with a chunk that contains bad rows."""
    results = []
    for bad in BAD_ROWS:
        try:
            found = read([value, bad, value])
        except Exception as error:  # noqa: BLE001  every tool has its own errors
            results.append(f"fails ({type(error).__name__})")
        else:
            results.append(f"{len(found)} rows")  # type: ignore[arg-type]
    return "; ".join(results)


def main() -> None:
    stream = EventStream(StreamSettings(events=EVENTS, broken=0.0, duplicates=0.0), 1_767_225_600_000)
    block = stream.take(EVENTS)
    values = [str(value).encode() for value in block.values[LOG]]
    chunks = [values[begin : begin + CHUNK] for begin in range(0, len(values), CHUNK)]
    print("| what | µs per event | not JSON; a field of another type |\n|---|---:|---|")
    for name, read in TOOLS.items():
        seconds = best_time(lambda read=read: [read(chunk) for chunk in chunks])
        print(f"| {name} | {seconds / len(values) * 1e6:.1f} | {behavior_with_bad_rows(read, values[0])} |")
    for source, number in (("log", LOG), ("db", DB)):
        records = [
            (key.encode(), str(value).encode())
            for key, value in zip(block.keys[number], block.values[number], strict=True)
        ]
        batches = [record_batch(source, records[at : at + CHUNK], at) for at in range(0, len(records), CHUNK)]

        def transform(source: str = source, batches: list[pa.RecordBatch] = batches) -> None:
            run = ArrowRun(ods_dwd, source)
            for batch in batches:
                run.flow.transform(batch, run.task)

        seconds = best_time(transform)
        print(f"| the whole of ods-dwd, ods_{source} | {seconds / len(records) * 1e6:.1f} | dead letters |")


if __name__ == "__main__":
    main()
