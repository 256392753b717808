"""Test helpers: cli."""
