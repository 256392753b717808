"""Test helpers: net."""
