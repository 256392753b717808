"""Test helpers: sessions, clusters, and both Kafka formats."""
