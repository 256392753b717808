import json
import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from headrace.cli.capacity.capacity import QUANTITY
from headrace.cli.main import main

EXAMPLE = ["capacity", "--events-per-day", "100M", "--peak", "20000", "--event-size", "1KB"]
PAGE = Path(__file__).parents[4] / "docs" / "capacity.md"


@pytest.mark.parametrize(
    ("text", "number"),
    [("20000", 20_000), ("20_000", 20_000), ("100M", 1e8), ("1.5KB", 1_500), (".5 g", 5e8), ("2TB", 2e12)],
)
def test_quantities(text: str, number: float) -> None:
    assert QUANTITY.convert(text, None, None) == number


@pytest.mark.parametrize("text", ["", "x", "0", "-1", "1KiB", "1e6", "1.2.3"])
def test_invalid_quantities(text: str) -> None:
    with pytest.raises(click.BadParameter, match="expected a positive number"):
        QUANTITY.convert(text, None, None)


def test_json() -> None:
    ran = CliRunner().invoke(main, [*EXAMPLE, "--compression", "4", "--json"])
    assert ran.exit_code == 0, ran.output
    document = json.loads(ran.stdout)
    assert document["load"]["event_bytes"] == 250
    assert document["rates"]["produce_bytes"] == 100e6
    assert document["choices"]["processes_per_machine"] == 1
    assert document["capacity"]["brokers"] == 3


def test_peak_below_the_average() -> None:
    ran = CliRunner().invoke(main, ["capacity", "--events-per-day", "100M", "--peak", "1000"], prog_name="headrace")
    assert ran.exit_code == 1
    assert "expected at least the average of --events-per-day, 1,157 a second" in ran.stderr


def test_examples_of_the_page() -> None:
    blocks = re.findall(
        r"^```console\n\$ headrace (capacity .*?)\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE
    )
    assert len(blocks) >= 2
    for command, output in blocks:
        ran = CliRunner().invoke(main, command.replace("\\\n>", "").split())
        assert ran.exit_code == 0, ran.output
        assert ran.stdout == output
