"""Test helpers: hostile."""
