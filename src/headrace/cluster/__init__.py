"""Cluster metadata: the coordination store, the controller and its state machines, the brokers' metadata image."""
