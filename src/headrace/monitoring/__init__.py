"""Metrics for Prometheus, with the names that dashboards and alerts for Apache Kafka use.

Broker and console take snapshots of what they know (`snapshot`). This package turns them into metrics and serves them
over HTTP, in a thread of its own. It needs the extra `monitoring`. A broker without an endpoint does not import it.
"""
