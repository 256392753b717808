"""Test helpers: cluster."""
