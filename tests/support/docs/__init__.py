"""Test helpers: runs the examples of the documentation."""
