"""Brokers that authenticate with each other by SASL."""

import pytest
from tests.support.security.sasl_broker import USERS, add_scram_users, client_config, sasl_properties

import headrace
from headrace.testing.cluster import EmbeddedCluster


def test_brokers_authenticate_with_each_other(tmp_path: object, caplog: pytest.LogCaptureFixture) -> None:
    """Replication, controller requests and transactions between brokers with PLAIN, then with SCRAM after restarts."""
    cluster = EmbeddedCluster(2, sasl_properties(), {"t": 2})
    with cluster:
        servers = cluster.bootstrap_servers
        add_scram_users(servers)
        with headrace.Producer({**client_config(servers, "SCRAM-SHA-512"), "transactional.id": "x"}) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            futures = [producer.send("t", b"x", partition=partition) for partition in (0, 1)]
            producer.commit_transaction()
            assert {future.get(timeout_ms=30_000).partition for future in futures} == {0, 1}
        cluster.wait_until_in_sync()
        cluster.kill(1)
        with headrace.Producer(client_config(servers, "SCRAM-SHA-256", "bob")) as producer:
            # The other broker leads now.
            assert producer.send("t", b"y", partition=0).get(timeout_ms=60_000).partition == 0
    assert "cannot log in" not in caplog.text
    assert not any(password in caplog.text for password in USERS.values())
