"""Test helpers: logs, batches, workloads and checks of log files."""
