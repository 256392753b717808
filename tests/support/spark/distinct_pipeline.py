"""The files of an Arrow pipeline with state, as a user writes them: the first record of each key, and a neighbour
module that Spark's workers cannot import."""

from pathlib import Path

PIPELINE = """
import pyarrow as pa
from known_keys import KnownKeys

from headrace.pipelines import Topic, arrow_pipeline


@arrow_pipeline(
    "distinct",
    sources={"rows": Topic("distinct-in")},
    outputs={"out": Topic("distinct-out", partitions=2)},
    state=lambda task: KnownKeys(),
)
def distinct(rows, task):
    new = [task.state.add(key.decode()) for key in rows["key"].to_pylist()]
    return {"out": rows.filter(pa.array(new, pa.bool_())).select(["key", "value"])}
"""
KNOWN_KEYS = """
class KnownKeys:
    def __init__(self):
        self.keys, self.added = set(), []

    def add(self, key):
        if key in self.keys:
            return False
        self.keys.add(key)
        self.added.append(key)
        return True

    def take_delta(self):
        added, self.added = self.added, []
        return ",".join(added).encode()

    def apply_delta(self, delta):
        self.keys.update(delta.decode().split(","))

    def snapshot(self):
        return ",".join(sorted(self.keys)).encode()

    restore = apply_delta

    def merge(self, other):
        self.keys |= other.keys
"""


def write_distinct_pipeline(directory: Path) -> Path:
    """Writes the files and returns the file of the pipeline."""
    (directory / "known_keys.py").write_text(KNOWN_KEYS)
    file = directory / "distinct.py"
    file.write_text(PIPELINE)
    return file
