"""`headrace reassign-partitions`: moves partitions to other brokers."""
