"""Test helpers: client."""
