from typing import Any

import pytest
from click.testing import CliRunner

from headrace.cli.main import main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--listen", "here"], "HOST:PORT"),
        (["--cluster", "other"], "NAME=HOST:PORT"),
        (["--cluster", "default=h:1"], "another cluster with this name"),
        (["--cluster-config", "other=/no/such/file"], "/no/such/file"),
        (["--broker-metrics", "x"], "[NAME:]ID="),
        (["--broker-metrics", "other:1=http://h/metrics"], "[NAME:]ID="),
        (["--name", "a b"], "Cluster name"),
    ],
)
def test_wrong_options_are_usage_errors(arguments: list[str], message: str) -> None:
    ran: Any = CliRunner().invoke(main, ["console", "--bootstrap-server", "h:1", *arguments], prog_name="headrace")
    assert ran.exit_code != 0
    assert message in ran.output
