"""Test helpers: apache kafka."""
