"""Test helpers for the coordinator package."""
