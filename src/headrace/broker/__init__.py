"""The broker: dispatches requests to one handler per API, and owns the partitions."""
