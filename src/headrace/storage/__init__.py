"""The log layer: Kafka's files on disk, one directory per partition, with recovery, retention and compaction."""
