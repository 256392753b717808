"""Tools for topics."""
