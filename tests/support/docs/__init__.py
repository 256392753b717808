"""Test helpers: docs."""
