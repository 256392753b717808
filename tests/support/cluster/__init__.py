"""Test helpers for the cluster package."""
