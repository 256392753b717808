"""Browsing records, the live tail, and producing a record."""
