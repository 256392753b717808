"""Benchmarks: each measures Headrace beside a peer in the same run. `python -m bench --help`."""
