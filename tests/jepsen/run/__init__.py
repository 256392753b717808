"""The run: brokers and ZooKeeper in network namespaces, faults, workers that record a history."""
