"""Checks that find what is wrong with a cluster: pure functions of a snapshot."""
