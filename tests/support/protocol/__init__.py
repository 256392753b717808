"""Test helpers: protocol."""
