"""The tables of errors and broker configs compared with Apache Kafka's."""

from pathlib import Path

import pytest
from tests.support.apache_kafka.broker import run_java
from tests.support.apache_kafka.kafka_3_configs import is_not_in_kafka_4

from headrace.broker.config.broker import BROKER_KEYS
from headrace.broker.config.kafka_only import NO_EFFECT, REFUSED
from headrace.common.errors import ERRORS_BY_CODE
from headrace.security.tls_keys import UNSUPPORTED

SOURCE = """
import java.util.*;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.server.config.DynamicBrokerConfig;

public class Tables {
    public static void main(String[] args) {
        for (Errors error : Errors.values())
            System.out.println("error\\t" + error.code() + "\\t" + error.name() + "\\t"
                + (error.exception() instanceof RetriableException));
        Map<String, String> modes = DynamicBrokerConfig.dynamicConfigUpdateModes();
        for (ConfigDef.ConfigKey key : kafka.server.KafkaConfig.configDef().configKeys().values())
            System.out.println("key\\t" + key.name + "\\t" + (key.hasDefault() ? key.defaultValue : null) + "\\t"
                + modes.getOrDefault(key.name, "read-only"));
    }
}
"""

OTHER_DEFAULTS = {
    "compression.gzip.level",  # -1 means 6 in Kafka, the value here
    "listener.security.protocol.map",  # in another order
    "log.cleaner.io.max.bytes.per.second",  # both mean no limit
    "log.dir",
    "log.dirs",
    "log.flush.interval.ms",  # both mean no limit
    "log.flush.scheduler.interval.ms",  # see DESIGN.md
    "principal.builder.class",  # the default one has no name here
    "queued.max.request.bytes",  # see DESIGN.md
    "sasl.kerberos.service.name",  # the usual name
    "sasl.oauthbearer.jwt.retriever.class",  # the same class
    "sasl.oauthbearer.jwt.validator.class",  # the same class
    "socket.listen.backlog.size",  # see DESIGN.md
    "socket.receive.buffer.bytes",  # see DESIGN.md
    "socket.send.buffer.bytes",  # see DESIGN.md
    "ssl.keystore.type",  # found by its content
    "ssl.truststore.type",  # found by its content
}
NOT_DYNAMIC_HERE = {
    "background.threads",
    "listener.security.protocol.map",
    "listeners",
    "principal.builder.class",
    "sasl.enabled.mechanisms",
    "sasl.jaas.config",
    "sasl.kerberos.principal.to.local.rules",
    "sasl.kerberos.service.name",
    "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
    "sasl.mechanism.inter.broker.protocol",
    "ssl.cipher.suites",
    "ssl.client.auth",
    "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm",
    "ssl.protocol",
}
"""Of SASL and TLS, only keystores and truststores change at run time."""


@pytest.fixture(scope="module")
def tables(apache_kafka: None, tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    source: Path = tmp_path_factory.mktemp("tables") / "Tables.java"
    source.write_text(SOURCE)
    return [line.split("\t") for line in run_java(source).stdout.splitlines()]


def test_errors(tables: list[list[str]]) -> None:
    theirs = {int(row[1]): (row[2], row[3] == "true") for row in tables if row[0] == "error" and row[1] != "0"}
    assert {code: (error.name, error.retriable) for code, error in ERRORS_BY_CODE.items()} == theirs


def test_every_broker_key_is_known(tables: list[list[str]]) -> None:
    theirs = {row[1] for row in tables if row[0] == "key"}
    assert theirs - BROKER_KEYS.keys.keys() - NO_EFFECT.keys() - REFUSED.keys() - UNSUPPORTED.keys() == set()
    ours = {key for key in BROKER_KEYS.keys if not key.startswith("headrace.")}
    assert {key for key in ours - theirs if not is_not_in_kafka_4(key)} == set()


def test_broker_configs_match_kafkas(tables: list[list[str]]) -> None:
    different: dict[str, tuple[str, str]] = {}
    other_modes: set[str] = set()
    for kind, name, default, mode in (row for row in tables if row[0] == "key"):
        key = BROKER_KEYS.keys.get(name)
        if key is None:
            continue
        ours, theirs = key.format(key.default) or "null", default.strip("[]").replace(", ", ",") or "null"
        if ours != theirs and name not in OTHER_DEFAULTS:
            different[name] = (ours, theirs)
        if key.dynamic != (mode != "read-only"):
            other_modes.add(name)
        assert kind == "key"
    assert different == {}
    assert other_modes == NOT_DYNAMIC_HERE
