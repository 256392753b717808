"""Tools for access control."""
