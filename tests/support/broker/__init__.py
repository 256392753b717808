"""Test helpers: broker."""
