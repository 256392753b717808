"""Tools for consumer groups."""
