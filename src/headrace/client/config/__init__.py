"""The clients' configuration: one table of keys per client."""
