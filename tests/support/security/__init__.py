"""Test helpers: SASL exchanges."""
