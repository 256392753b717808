"""Test helpers: sanitizers."""
