"""Test helpers: batches without a broker, and a reference implementation."""
