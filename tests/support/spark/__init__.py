"""Test helpers: spark."""
