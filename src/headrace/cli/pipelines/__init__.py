"""Tools for Spark pipelines."""
