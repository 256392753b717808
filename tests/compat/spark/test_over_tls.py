"""Both formats over SASL_SSL: each writes what the other reads."""

from pathlib import Path
from typing import Any

import pytest
from tests.support.security.sasl_broker import MODULES, USERS, jaas
from tests.support.security.tls import TlsFiles
from tests.support.spark.formats import BOTH

from headrace.testing import EmbeddedBroker


def test_both_formats_with_scram_over_tls(spark: Any, kafka_connector: str, tmp_path: Path) -> None:
    files = TlsFiles(tmp_path)
    properties = files.broker_properties(
        "SASL_SSL",
        **{
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": jaas("PLAIN"),
        },
    )
    with EmbeddedBroker(properties, topics={"t": 1}) as broker:
        options = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": files.ca,
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": f'{MODULES["PLAIN"]} required username="alice" password="{USERS["alice"]}";',
        }
        for name in BOTH:
            frame = spark.createDataFrame([(name.encode(),)], "value binary")
            frame.write.format(name).options(**options, topic="t").mode("append").save()
        for name in BOTH:
            rows = spark.read.format(name).options(**options, subscribe="t").load().select("value").collect()
            assert sorted(bytes(row.value).decode() for row in rows) == sorted(BOTH)
        wrong = {**options, "kafka.ssl.truststore.location": files.other_ca}
        with pytest.raises(Exception, match=r"certificate of the broker is not accepted"):
            spark.read.format("headrace").options(**wrong, subscribe="t").load().collect()
