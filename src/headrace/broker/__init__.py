"""The broker: takes requests apart, one handler per API, and owns the partitions that they work on."""
