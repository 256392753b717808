"""Tools that measure throughput and latency."""
