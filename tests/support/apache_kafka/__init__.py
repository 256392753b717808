"""Test helpers: Apache Kafka's broker, clients, tools and files."""
