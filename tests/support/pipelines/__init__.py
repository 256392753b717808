"""Test helpers for pipelines."""
