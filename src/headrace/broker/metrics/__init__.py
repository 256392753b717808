"""The metrics of a broker for Prometheus. Imported only by brokers that serve them (`headrace.metrics.listener`)."""
