"""Test helpers: brokers, and the clients of other projects."""
