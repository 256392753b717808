"""Tools for brokers and the cluster."""
