"""Test helpers: coordinator."""
