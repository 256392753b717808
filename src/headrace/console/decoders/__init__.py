"""Decoders: from the bytes of keys, values and headers to text that people read."""
