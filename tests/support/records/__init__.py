"""Test helpers: records."""
