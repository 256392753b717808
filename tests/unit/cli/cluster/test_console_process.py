import pytest

from headrace.cli.cluster.console_process import ConsoleOptions, console_command
from headrace.common.errors import ConfigError


def test_the_command_has_the_addresses_of_the_first_listener() -> None:
    addresses = "PLAINTEXT://0.0.0.0:9092, SASL_SSL://h:9093, PLAINTEXT://[::1]:9094"
    command = console_command(ConsoleOptions(":8080", True, "c.properties"), addresses, {3: "http://h:1/metrics"})
    assert command[command.index("--bootstrap-server") + 1] == "127.0.0.1:9092,[::1]:9094"
    assert command[command.index("--listen") + 1] == ":8080"
    assert "--write" in command
    assert command[command.index("--command-config") + 1] == "c.properties"
    assert command[command.index("--broker-metrics") + 1] == "3=http://h:1/metrics"
    assert "--write" not in console_command(ConsoleOptions(":8080"), addresses, {})


def test_a_broker_without_addresses_is_refused() -> None:
    with pytest.raises(ConfigError):
        console_command(ConsoleOptions(":8080"), "", {})
