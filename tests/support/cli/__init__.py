"""Test helpers: runs shell tools in a terminal."""
