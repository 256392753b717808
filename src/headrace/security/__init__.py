"""TLS, SASL mechanisms, principals and access rules: what broker and clients share of Kafka's security."""
