from pathlib import Path

from headrace.broker.config.broker import BROKER_KEYS, BrokerConfig
from headrace.broker.config.template import config_template
from headrace.common.properties import read_properties

VALUES = {"listeners": "PLAINTEXT://127.0.0.1:9092", "log.dirs": "data"}


def test_sets_only_the_given_values(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(config_template(VALUES))
    assert read_properties(str(file)) == VALUES


def test_names_every_broker_config_once() -> None:
    names = [
        line.removeprefix("#").partition("=")[0]
        for line in config_template(VALUES).splitlines()
        if "=" in line and not line.startswith("# ")
    ]
    assert sorted(names) == sorted(BROKER_KEYS.keys)


def test_shown_defaults_are_the_defaults(tmp_path: Path) -> None:
    lines = [
        line.removeprefix("#")
        for line in config_template(VALUES).splitlines()
        if "=" in line and not line.startswith("# ") and not line.endswith("=")
    ]
    file = tmp_path / "server.properties"
    file.write_text("\n".join(lines))
    for name, value in read_properties(str(file)).items():
        if name not in VALUES:
            assert BROKER_KEYS.keys[name].parse(value) == BROKER_KEYS.keys[name].default
    BrokerConfig.load(VALUES)


def test_keeps_values_without_effect() -> None:
    text = config_template({**VALUES, "num.io.threads": "8"})
    assert text.endswith("# ---- Configs of Apache Kafka that have no effect here\n\nnum.io.threads=8\n")
