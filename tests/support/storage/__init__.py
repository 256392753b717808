"""Test helpers: storage."""
