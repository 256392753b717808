"""Helpers of the tests of the web console."""
