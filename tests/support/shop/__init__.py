"""Test helpers: shop."""
