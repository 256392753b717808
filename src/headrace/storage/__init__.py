"""The log: Kafka's files on disk, one directory per partition, and everything that keeps them in order."""
