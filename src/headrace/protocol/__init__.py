"""Kafka's wire protocol: message classes, the table of APIs, and the codec."""
