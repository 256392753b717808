"""The versions of `ods-dwd` that are compared, each as the command that runs it."""

from dataclasses import dataclass
from pathlib import Path

from tests.support.spark.session import connector_jars

HERE = Path(__file__).parent
SQL_PIPELINE = HERE / "sql_ods_dwd.py"
ARROW, SQL, CONNECTOR = "Arrow", "SQL", "connector"
ALL_SIDES = (ARROW, SQL, CONNECTOR)


@dataclass(frozen=True)
class Side:
    """A version. `command` are the arguments of Python; those that all versions share follow them."""

    name: str
    command: tuple[str, ...]
    first_rate: int
    """The rate at which the search for the highest rate begins."""


def find_sides(names: list[str], peer: str) -> list[Side]:
    """Returns the named sides. `peer` is the pipeline of the SQL version: a file or a built-in name. Raises
    `KafkaUnavailable` if the connector is named, but not available."""
    if unknown := set(names) - set(ALL_SIDES):
        raise SystemExit(f"unknown version {', '.join(unknown)}; expected some of {', '.join(ALL_SIDES)}")
    made = []
    for name in names:
        if name == CONNECTOR:
            jars = ",".join(map(str, connector_jars()))
            command = ("-m", "bench.pipeline.connector", peer, "--conf", f"spark.jars={jars}")
            made.append(Side(name, command, 20_000))
        else:
            pipeline, rate = ("ods-dwd", 40_000) if name == ARROW else (peer, 20_000)
            made.append(Side(name, ("-m", "headrace", "pipeline", "run", pipeline, "--quiet"), rate))
    return made
