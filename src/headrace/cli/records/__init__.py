"""Tools that print, write and decode records."""
