"""Fuzzes the compiled JSON reader and writer: `python -m tests.support.pipelines.json_fuzzer --seed 1 --rounds 1000`.

Every input must be read or rejected, in the same way as by the slow reader. Prints what happened as JSON.
"""

import argparse
import json
import random
from collections import Counter

import pyarrow as pa
from tests.support.pipelines.json_cases import SCHEMA, buffers, random_bytes, random_row, read, read_slowly

from headrace.pipelines import _json_reader
from headrace.pipelines.json_columns import can_write, join_pieces, json_members, list_items


def fuzz_once(rng: random.Random, outcomes: Counter[str]) -> None:
    rows = [rng.choice((random_row, random_row, random_row, random_bytes))(rng) for _ in range(rng.randrange(1, 12))]
    values: list[bytes | None] = [None if rng.random() < 0.05 else row for row in rows]
    found = read(values)
    expected = read_slowly(values)
    assert buffers(found) == buffers(expected), values
    assert found.invalid == expected.invalid, values
    found.columns.validate(full=True)
    outcomes["invalid"] += len(found.invalid)
    outcomes["unusual"] += len(found.unusual)
    outcomes["plain"] += len(values) - len(found.invalid) - len(found.unusual)
    write(found.columns.slice(rng.randrange(len(values))), rng)


def write(columns: pa.StructArray, rng: random.Random) -> None:
    """Writes the columns and reads the result."""
    names = [field.name for field in SCHEMA if can_write(pa.schema([field]))]
    fields = dict(zip(SCHEMA.names, columns.flatten(), strict=True))
    written = join_pieces(json_members({name: fields[name] for name in names}, opening=b"{"), b"}")
    for row, text in enumerate(written.to_pylist()):
        content = json.loads(text)
        assert list(content) == [name for name in names if fields[name][row].is_valid]
        for name in ("a", "b", "i", "k", "t", "f"):
            assert content.get(name) == fields[name][row].as_py()
    items = list_items(fields["l"], pa.array([rng.random() < 0.7 for _ in range(len(columns))], pa.bool_()))
    members = json_members({"n": fields["l"].values.field("n"), "m": fields["l"].values.field("m")})
    rows = join_pieces((written, items.lists), (members, items.elements), json_members({"seq": items.positions}))
    assert len(rows) == len(items.lists)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1000)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    outcomes: Counter[str] = Counter()
    for _ in range(arguments.rounds):
        fuzz_once(rng, outcomes)
    print(json.dumps({"kernel": _json_reader.__file__, "outcomes": outcomes}))


if __name__ == "__main__":
    main()
