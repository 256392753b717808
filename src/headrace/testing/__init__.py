"""Tools for tests of Headrace and of programs that use it."""
