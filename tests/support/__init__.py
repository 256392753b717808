"""Helpers that tests share; nothing here is part of the package itself."""
