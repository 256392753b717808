"""ZooKeeper: the coordination store of a cluster of several brokers, and a server for development and tests."""
