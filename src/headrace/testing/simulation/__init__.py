"""A deterministic simulation of a cluster: real brokers and clients on a virtual clock, network, disk and store.

    python -m headrace.testing.simulation --seed 17

`loop` is the virtual event loop and its nodes, `network` the connections, `disks` the disks, `store` the coordination
store, `cluster` the brokers and clients. `workload` and `faults` drive a run by its seed, `history` and `invariants`
check it.
"""
