import pytest

from headrace.cli.common.hints import command_hint, flag_hint
from headrace.cli.main import TOOLS


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("topic", "topics"),
        ("kafka-topics", "topics"),
        ("kafka-topics.sh", "topics"),
        ("kafka-consumer-groups.bat", "consumer-groups"),
        ("consumer-group", "consumer-groups"),
        ("console_consumer", "console-consumer"),
        ("tpoics", "topics"),
        ("servers", "server"),
    ],
)
def test_command_of_kafka_or_misspelled(typed: str, expected: str) -> None:
    assert command_hint(typed, TOOLS) == f" Did you mean 'headrace {expected}'?"


def test_unknown_command_without_a_similar_one() -> None:
    assert command_hint("frobnicate", TOOLS) == ""


@pytest.mark.parametrize("flag", ["--broker-list", "--zookeeper", "--bootstrap-servers"])
def test_old_flags(flag: str) -> None:
    assert "use --bootstrap-server HOST:PORT" in flag_hint(flag, ["--bootstrap-server", "--property"])


def test_misspelled_flag() -> None:
    assert flag_hint("--lst", ["--list", "--delete"]) == ". Did you mean --list?"
    assert flag_hint("--frobnicate", ["--list", "--delete"]) == ""
