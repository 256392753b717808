"""Test helpers: test doubles, virtual time, a raw protocol client."""
